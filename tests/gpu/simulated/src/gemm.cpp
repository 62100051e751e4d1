#include "gemm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cmath>

#include "cupti.h"
#include "device_model.h"
#include "process.h"
#include "timeline.h"

namespace sim {
namespace {

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

Unit unit_of(const Gemm& gemm) {
  switch (gemm.type) {
    case CUDA_R_64F:
    case CUDA_C_64F:
      return Unit::FP64;
    case CUDA_R_32F:
    case CUDA_C_32F:
      return gemm.tf32 && has_tf32() ? Unit::TF32 : Unit::FP32;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return Unit::HALF;
    default:
      return Unit::FP8;
  }
}

// Kernel tiles and the fraction of peak they reach. Calibrated on an H100 in BF16 with 128 x 128 tiles and a
// depth of 1,024: 41 by 8 tiles take 20.9 µs, 41 by 32 tiles 57.4 µs.
const std::vector<Tile>& tensor_core_tiles() {
  static const std::vector<Tile> tiles = {{256, 128, 0.80}, {128, 256, 0.80}, {128, 128, 0.76},
                                          {128, 64, 0.62},  {64, 128, 0.62},  {64, 64, 0.45},
                                          {64, 32, 0.28}};
  return tiles;
}
const std::vector<Tile>& plain_tiles() {
  static const std::vector<Tile> tiles = {{128, 128, 0.80}, {128, 64, 0.72}, {64, 64, 0.60}, {32, 32, 0.30}};
  return tiles;
}

// The fraction of peak that kernels reach with less aligned rows. Tensor cores are fed by asynchronous
// 16-byte copies; rows without that alignment go through registers, two or four bytes at a time. In BF16 with
// rows of 5,185 elements (`…_align1`), an H100 reaches 51 and 66 TFLOP/s. An A100 loses less: about half,
// with rows of 50,257 elements.
double unaligned_efficiency(int aligned_bytes, int element) {
  if (aligned_bytes >= 16) return 1;
  if (has_wgmma()) return aligned_bytes >= 2 * element ? 0.25 : 0.08;
  return aligned_bytes >= 2 * element ? 0.65 : 0.45;
}

// Picks the fastest tile, as a perfect heuristic would.
Tile best_tile(const GemmShape& size, const std::vector<Tile>& tiles, double rate) {
  auto time = [&](const Tile& tile) { return tiled_gemm_ns(size, tile, splits_of(size, tile), rate); };
  return *std::min_element(tiles.begin(), tiles.end(),
                           [&](const Tile& a, const Tile& b) { return time(a) < time(b); });
}

const char* half_letter(cudaDataType type) {
  return type == CUDA_R_16F ? "h" : type == CUDA_R_16BF ? "t" : type == CUDA_R_32F ? "s" : "q";
}

// For example `bf16bf16_bf16f32_f32`: A and B, accumulator, C.
std::string xmma_types(const Gemm& gemm, Unit unit) {
  if (unit == Unit::TF32) return "f32f32_tf32f32_f32";
  if (unit == Unit::FP32) return "f32f32_f32f32_f32";
  if (unit == Unit::FP8) return "e4m3e4m3_e4m3f32_f32";
  return gemm.type == CUDA_R_16F ? "f16f16_f16f32_f32" : "bf16bf16_bf16f32_f32";
}

bool has_nvjet() {
  static const char* chosen = getenv("SIMGPU_NVJET");
  return has_wgmma() && !(chosen && strcmp(chosen, "0") == 0);
}

std::string aligned_name(const Gemm& gemm, Unit unit, const Tile& tile, const char* layout) {
  std::string types = xmma_types(gemm, unit);
  bool hopper = has_wgmma();
  if (unit == Unit::FP64)
    return text(
        "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_%dx%d_16x4_%s_align1>"
        "(cutlass_80_tensorop_d884gemm_%dx%d_16x4_%s_align1::Params)",
        tile.rows, tile.columns, layout, tile.rows, tile.columns, layout);
  if (unit == Unit::FP32) {
    if (!hopper) return text("ampere_sgemm_%dx%d_%s", tile.rows, tile.columns, layout);
    return text(
        "sm80_xmma_gemm_%s_%s_n_tilesize%dx%dx8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_"
        "cublas",
        types.c_str(), layout, tile.rows, tile.columns);
  }
  if (unit != Unit::TF32 && has_nvjet()) {
    std::string kinds =
        unit == Unit::FP8 ? "qqtst" : std::string(half_letter(gemm.type)) + "s" + half_letter(gemm.output);
    const char* order = tile.rows >= tile.columns ? "v" : "h";
    const char* cooperation =
        tile.rows * tile.columns >= 256 * 128 ? (tile.rows > tile.columns ? "_coopA" : "_coopB") : "";
    return text("nvjet_sm%d0_%s_%dx%d_64x%d_%s_%s_bz%s%s_%c%c%c", model().major, kinds.c_str(), tile.rows,
                tile.columns, tile.rows * tile.columns >= 256 * 128 ? 4 : 6,
                tile.rows >= tile.columns ? "2x1" : "1x2", order, cooperation, gemm.bias ? "_bias" : "",
                toupper(layout[0]), toupper(layout[1]), gemm.bias ? 'T' : 'N');
  }
  if (hopper)
    return text(
        "sm90_xmma_gemm_%s_%s_n_tilesize%dx%dx%d_warpgroupsize%dx1x1_execute_segment_k_off_kernel__5x_cublas",
        types.c_str(), layout, tile.rows, tile.columns, unit == Unit::TF32 ? 32 : 64,
        tile.rows >= 256 ? 2 : 1);
  if (unit == Unit::TF32)
    return text(
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_%dx%d_16x4_%s_align4>"
        "(cutlass_80_tensorop_s1688gemm_%dx%d_16x4_%s_align4::Params)",
        tile.rows, tile.columns, layout, tile.rows, tile.columns, layout);
  const char* half = gemm.type == CUDA_R_16F ? "fp16" : "bf16";
  return text("ampere_%s_s16816gemm_%s_%dx%d_ldg8_f2f_stages_%dx%d_%s", half, half, tile.rows, tile.columns,
              tile.rows * tile.columns >= 256 * 128 ? 64 : 32, tile.rows * tile.columns >= 256 * 128 ? 3 : 5,
              layout);
}

// CUTLASS kernels. The name ends with the number of elements per load.
std::string unaligned_name(const Gemm& gemm, Unit unit, const Tile& tile, const char* layout) {
  int elements = std::max(1, gemm.aligned_bytes / bytes_of(gemm.type));
  std::string kernel;
  if (unit == Unit::FP32) {
    kernel = text("cutlass_80_simt_sgemm_%dx%d_8x4_%s_align1", tile.rows, tile.columns, layout);
  } else if (unit == Unit::TF32) {
    kernel = text("cutlass_80_tensorop_s1688gemm_%dx%d_16x4_%s_align%d", tile.rows, tile.columns, layout,
                  std::min(elements, 2));
  } else {
    const char* half = gemm.type == CUDA_R_16F ? "f16" : "bf16";
    if (elements >= 2)
      kernel = text("cutlass_80_wmma_tensorop_%s_s161616gemm_%s_32x32_128x2_%s_align2", half, half, layout);
    else
      kernel = text("cutlass_75_tensorop_%s_s1688gemm_%s_%dx%d_%s_align1", half, half, tile.rows,
                    tile.columns, layout);
  }
  return "void cutlass::Kernel2<" + kernel + ">(" + kernel + "::Params)";
}

// A matrix-vector product is bound by reading the matrix.
std::vector<LibraryKernel> matrix_vector(const Gemm& gemm, double bytes) {
  const char* type = gemm.type == CUDA_R_16BF  ? "__nv_bfloat16"
                     : gemm.type == CUDA_R_16F ? "__half"
                     : gemm.type == CUDA_R_64F ? "double"
                                               : "float";
  unsigned blocks = std::max(1.0, std::ceil(std::max(gemm.size.rows, gemm.size.columns) / 8));
  return {{text("void gemv2T_kernel_val<int, int, %s, %s, %s, float, 128, 16, 4, 4, false, false, "
                "cublasGemvParamsEx<int, "
                "cublasGemvTensorStridedBatched<%s const>, cublasGemvTensorStridedBatched<%s const>, "
                "cublasGemvTensorStridedBatched<%s>, float> >(cublasGemvParamsEx<int, "
                "cublasGemvTensorStridedBatched<%s "
                "const>, cublasGemvTensorStridedBatched<%s const>, cublasGemvTensorStridedBatched<%s>, "
                "float>, float, float)",
                type, type, type, type, type, type, type, type, type),
           GEMM_OVERHEAD_NS + memory_ns(bytes, 0.7), dim3(blocks), dim3(128), 40, 2048}};
}

}  // namespace

int bytes_of(cudaDataType type) {
  switch (type) {
    case CUDA_C_64F:
      return 16;
    case CUDA_R_64F:
    case CUDA_C_32F:
      return 8;
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    default:
      return 1;
  }
}

int alignment(const void* address, int64_t leading_bytes, int64_t batch_bytes) {
  uint64_t bits = (uint64_t)(uintptr_t)address | (uint64_t)leading_bytes | (uint64_t)batch_bytes | 16;
  return (int)(bits & -bits);
}

int launch_kernels(cudaStream_t stream, const std::vector<LibraryKernel>& kernels) {
  for (const LibraryKernel& kernel : kernels) {
    Op op;
    op.name = intern(kernel.name);
    op.grid = kernel.grid;
    op.block = kernel.block;
    op.registers = kernel.registers;
    op.dynamic_shared = kernel.shared;
    op.duration_ns = duration(kernel.ns);
    if (int error = launch_op(stream, op, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060)) return error;
  }
  return 0;
}

std::vector<LibraryKernel> gemm_kernels(const Gemm& gemm) {
  const GemmShape& size = gemm.size;
  Unit unit = unit_of(gemm);
  bool is_complex = gemm.type == CUDA_C_32F || gemm.type == CUDA_C_64F;
  double element = bytes_of(gemm.type);
  double bytes = size.batch * ((size.rows + size.columns) * size.depth * element +
                               size.rows * size.columns * bytes_of(gemm.output));
  if ((size.rows == 1 || size.columns == 1) && size.batch <= 65535) return matrix_vector(gemm, bytes);

  bool tensor_cores = unit != Unit::FP32;
  double share =
      tensor_cores && unit != Unit::FP64 ? unaligned_efficiency(gemm.aligned_bytes, (int)element) : 1;
  double rate = peak_flops(unit) * share / (is_complex ? 4 : 1);
  Tile tile = best_tile(size, tensor_cores ? tensor_core_tiles() : plain_tiles(), rate);
  double splits = splits_of(size, tile);
  double ns = GEMM_OVERHEAD_NS + std::max(tiled_gemm_ns(size, tile, splits, rate), memory_ns(bytes, 0.85));

  const char layout[] = {gemm.transpose_a ? 't' : 'n', gemm.transpose_b ? 't' : 'n', 0};
  bool aligned = gemm.aligned_bytes >= 16 || unit == Unit::FP64;
  LibraryKernel kernel{
      aligned ? aligned_name(gemm, unit, tile, layout) : unaligned_name(gemm, unit, tile, layout), ns,
      dim3(std::ceil(size.rows / tile.rows), std::ceil(size.columns / tile.columns),
           std::min(size.batch * splits, 65535.)),
      dim3(!tensor_cores            ? 256
           : has_wgmma() && aligned ? 384
                                    : 128)};
  kernel.registers = tensor_cores ? (has_wgmma() && aligned ? 168 : 234) : 122;
  kernel.shared = std::min(tile.rows + tile.columns, 384) * 128 * (tensor_cores ? 4 : 1);
  std::vector<LibraryKernel> kernels = {kernel};
  if (splits > 1) {
    double partial = size.batch * size.rows * size.columns * 4 * (splits + 1);
    kernels.push_back(
        {"void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>"
         "(cublasLt::cublasSplitKParams<float>, float const*, float const*, float*, float const*, float "
         "const*, float const*, float const*, float*, void*, long, float*, int*, float*)",
         KERNEL_OVERHEAD_NS + memory_ns(partial),
         dim3(std::ceil(size.rows / 32), std::ceil(size.columns / 16), std::min(size.batch, 65535.)),
         dim3(32, 16), 32, 0});
  }
  return kernels;
}

}  // namespace sim
