// Cost of kernels compiled into PyTorch or by Triton, mostly from the bytes they move.
//
// Names are mangled. Kernel arguments are read where the kernel's signature in PyTorch's source includes the
// number of elements. If its position varies, the launch configuration is used to validate it. Any other
// kernel is assumed to move 16 bytes per thread (one vectorized access).
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "cost_model.h"
#include "device_model.h"

namespace sim {
namespace {

struct Launch {
  const char* name;
  dim3 grid, block;
  void** args;

  bool has(const char* part) const {
    return strstr(name, part) != nullptr;
  }
  double blocks() const {
    return (double)grid.x * grid.y * grid.z;
  }
  double threads() const {
    return blocks() * block.x * block.y * block.z;
  }
  template <class T>
  T argument(int index) const {
    return *(const T*)args[index];
  }
  // Bytes per element, from the types in the name.
  double element() const {
    if (has("BFloat16") || has("4Half")) return 2;
    if (has("IdE") || has("Idd") || has("IlE") || has("Ill") || has("IlN")) return 8;
    if (has("IbE") || has("IhE") || has("IaE")) return 1;
    return 4;
  }
};

std::optional<double> elementwise_bytes(const Launch& launch) {
  if (!launch.args) return {};
  // distribution_elementwise_grid_stride_kernel(int64_t numel, PhiloxCudaState, …): generating random numbers
  // takes as long as writing them.
  if (launch.has("distribution_elementwise")) return 2 * launch.argument<int64_t>(0) * launch.element();
  if (!launch.has("elementwise_kernel")) return {};
  // All others: (int N, functor, data, …), where the data are std::array<char*, tensors>.
  double elements = launch.argument<int>(0);
  if (elements <= 0) return {};
  const char* array = strstr(launch.name, "5arrayIPcLm");
  double tensors = array ? atoi(array + 11) : launch.has("copy") || launch.has("Unary") ? 2 : 3;
  // With strides that could not be collapsed, every access computes an offset, and reads are not coalesced:
  // an H100 copies a transposed tensor at half of its bandwidth.
  bool strided = !launch.has("vectorized") && !launch.has("unrolled");
  return elements * tensors * launch.element() * (strided ? 1.8 : 1);
}

// reduce_kernel(ReduceOp): the operation contains a ReduceConfig. It begins with the element size, the inputs
// per output and the number of outputs, and also contains the block's width and height, which are used to
// locate it.
std::optional<double> reduction_bytes(const Launch& launch) {
  if (!launch.has("reduce_kernel") || !launch.has("ReduceOp") || !launch.args) return {};
  const int* words = (const int*)launch.args[0];
  for (int at = 0; at < 16; at++) {
    const int* config = words + at;
    bool is_size = config[0] == 1 || config[0] == 2 || config[0] == 4 || config[0] == 8 || config[0] == 16;
    bool is_block = config[11] == (int)launch.block.x && config[12] == (int)launch.block.y;
    if (is_size && config[1] > 0 && config[2] > 0 && is_block)
      return (double)config[0] * config[1] * config[2] + (double)config[0] * config[2];
  }
  return {};
}

std::optional<double> normalization_bytes(const Launch& launch) {
  if (!launch.args) return {};
  double rows = launch.grid.x, element = launch.element();
  // cunn_SoftMaxForward(output, input, classes), cunn_SoftMaxBackward(gradInput, output, gradOutput,
  // classes): one block per row. The row is read twice, for its maximum and its sum.
  if (launch.has("cunn_SoftMaxForward")) return rows * launch.argument<int>(2) * element * 3;
  if (launch.has("cunn_SoftMaxBackward")) return rows * launch.argument<int>(3) * element * 5;
  // softmax_warp_forward(output, input, batch, stride, elements, …): one warp for one or two rows.
  if (launch.has("softmax_warp_forward"))
    return (double)launch.argument<int>(2) * launch.argument<int>(4) * element * 2;
  if (launch.has("softmax_warp_backward"))
    return (double)launch.argument<int>(3) * launch.argument<int>(5) * element * 3;
  // vectorized_layer_norm_kernel(int N, eps, X, …), one block per row. An H100 reaches half of its bandwidth.
  if (launch.has("vectorized_layer_norm_kernel")) return rows * launch.argument<int>(0) * element * 2 * 1.8;
  // layer_norm_grad_input_kernel(dY, X, mean, rstd, gamma, dX, int N).
  if (launch.has("layer_norm_grad_input_kernel")) return rows * launch.argument<int>(6) * element * 3 * 1.5;
  // GammaBetaBackward…Kernel(int64_t M, int64_t N, …): reads both dY and X.
  if (launch.has("GammaBetaBackward"))
    return (double)launch.argument<int64_t>(0) * launch.argument<int64_t>(1) * element * 2;
  // fused_dropout_kernel(input, output, mask, unsigned elements, …): the mask has one byte per element.
  if (launch.has("fused_dropout_kernel")) return (double)launch.argument<unsigned>(3) * (2 * element + 1);
  return {};
}

// multi_tensor_apply_kernel(metadata, …): each block processes a chunk of 65,536 elements of one tensor. The
// metadata begins with `addresses[depth][N]` and `numel_for_tensor[N]`. N differs between versions; the right
// one gives as many chunks as the grid has blocks.
double elements_of_chunks(const Launch& launch, int depth) {
  constexpr double CHUNK = 65536;
  const int most[][5] = {
      {110, 64, 48, 36, 30}, {96, 64, 48, 36, 30}, {770, 448, 336, 252, 210}, {72, 60, 48, 36, 30}};
  if (launch.args && depth >= 1 && depth <= 5) {
    for (auto& table : most) {
      int room = table[depth - 1];
      const int64_t* sizes = (const int64_t*)launch.args[0] + (size_t)depth * room;
      double chunks = 0, elements = 0;
      for (int tensor = 0; tensor < room && chunks < launch.grid.x; tensor++) {
        if (sizes[tensor] <= 0 || sizes[tensor] > (1ll << 40)) break;
        chunks += std::ceil(sizes[tensor] / CHUNK);
        elements += sizes[tensor];
      }
      if (chunks == launch.grid.x) return elements;
    }
  }
  return launch.grid.x * CHUNK;
}

std::optional<double> optimizer_bytes(const Launch& launch) {
  const char* depth = strstr(launch.name, "ListMetadataILi");
  if (!launch.has("multi_tensor_apply_kernel") || !depth) return {};
  int tensors = atoi(depth + 15);
  // All tensors are read, and all but the gradients are written (weights, moments).
  return elements_of_chunks(launch, tensors) * launch.element() * (2 * tensors - 1);
}

// The longest run of bool template arguments in the name.
std::string bools_of(const char* name) {
  std::string longest, run;
  for (const char* at = name; *at;) {
    if (strncmp(at, "Lb0E", 4) == 0 || strncmp(at, "Lb1E", 4) == 0) {
      run += at[2];
      at += 4;
    } else {
      run.clear();
      at++;
    }
    if (run.size() > longest.size()) longest = run;
  }
  return longest;
}

// FlashAttention's parameters begin with pointers and strides, followed by batch, lengths and head size
// (Qkv_params and Flash_fwd_params in flash_attn's flash.h). The grid also includes batch and heads.
std::optional<double> flash_attention_ns(const Launch& launch) {
  bool forward = launch.has("flash_fwd"), backward = launch.has("flash_bwd_dq_dk_dv");
  if ((!forward && !backward) || !launch.args) return {};
  constexpr int BATCH = 176 / 4;
  const int* words = (const int*)launch.args[0] + BATCH;
  double batch = words[0], queries = words[1], keys = words[2], size = words[4];
  bool plausible = queries > 0 && keys > 0 && size > 0 && size <= 512 && launch.grid.y == (unsigned)batch;
  if (!plausible) return {};
  double gemms = forward ? 2 : 5;  // Q·K and P·V; backward recomputes scores and has four gradients
  double flops = 2 * gemms * batch * launch.grid.z * queries * keys * size;
  std::string flags = bools_of(launch.name);
  if (flags.size() > 1 && flags[1] == '1') flops /= 2;  // <traits, Is_dropout, Is_causal, …>
  // FlashAttention-2 reaches 225 TFLOP/s forward and 190 backward on an A100, and 350 and 300 on an H100,
  // where it does not use wgmma.
  double efficiency = has_wgmma() ? (forward ? 0.36 : 0.30) : (forward ? 0.70 : 0.58);
  double blocks = launch.blocks(), waves = std::ceil(blocks / model().multiprocessors);
  double filled = blocks / (waves * model().multiprocessors);
  return GEMM_OVERHEAD_NS + 1e9 * flops / (peak_flops(Unit::HALF) * efficiency * std::max(filled, 0.05));
}

// Memory-efficient attention: fmha_cutlass{F,B}_{type}_{,not}aligned_{queries}x{keys}_…, one block per tile
// of queries, head and batch element. The parameters (AttentionKernel::Params,
// AttentionBackwardKernel::Params) begin with pointers, followed by the head size and the lengths.
std::optional<double> efficient_attention_ns(const Launch& launch) {
  const char* kernel = strstr(launch.name, "fmha_cutlass");
  const char* shape = kernel ? strstr(kernel, "aligned_") : nullptr;
  if (!shape || !launch.args) return {};
  bool forward = kernel[12] == 'F', single = strstr(kernel, "_f32_") != nullptr;
  const int* words = (const int*)launch.args[0] + (forward ? 24 : 36);
  double size = words[0], queries = words[2], keys = words[3];
  double rows = std::max(16, atoi(shape + 8));
  bool plausible = size > 0 && queries > 0 && keys > 0 &&
                   (forward ? std::ceil(queries / rows) == launch.grid.x : words[4] == (int)launch.grid.y);
  if (!plausible) return {};
  double flops = 2 * (forward ? 2 : 5) * (double)launch.grid.y * launch.grid.z * queries * keys * size;
  if ((words[forward ? 5 : 6] & 0xff) != 0) flops /= 2;  // custom_mask_type: nonzero for causal masks
  // FP32 GEMMs use three TF32 GEMMs (CUTLASS's OpMultiplyAddFastF32).
  double rate = single ? peak_flops(Unit::TF32) / 3 : peak_flops(Unit::HALF) * (has_wgmma() ? 0.5 : 1);
  double filled = std::min(1.0, launch.blocks() / model().multiprocessors);
  return GEMM_OVERHEAD_NS + 1e9 * flops / (rate * 0.5 * std::max(filled, 0.05));
}

}  // namespace

uint64_t kernel_ns(const char* name, dim3 grid, dim3 block, void** args) {
  Launch launch{name ? name : "", grid, block, args};
  // torch.cuda._sleep(int64_t cycles).
  if (launch.has("spin_kernel") && args)
    return duration(KERNEL_OVERHEAD_NS + launch.argument<int64_t>(0) * 1e3 / model().clock_mhz);
  if (auto ns = flash_attention_ns(launch)) return duration(*ns);
  if (auto ns = efficient_attention_ns(launch)) return duration(*ns);
  std::optional<double> bytes = elementwise_bytes(launch);
  if (!bytes) bytes = reduction_bytes(launch);
  if (!bytes) bytes = normalization_bytes(launch);
  if (!bytes) bytes = optimizer_bytes(launch);
  // If a kernel's signature has changed, the sizes read from it are missing or absurd.
  if (bytes && (*bytes < 0 || *bytes > 100 * model().memory_gib * (1 << 30))) bytes.reset();
  return duration(KERNEL_OVERHEAD_NS + memory_ns(bytes.value_or(launch.threads() * 16)));
}

}  // namespace sim
