// Tensor cores need channels-last (NHWC) data. For other layouts, an engine transposes its inputs before the
// convolution and its output after it, with separate kernels.
//
// The real heuristic is not public. This one always recommends the engine with tiles of 64 points. The real
// heuristic can be as wrong as that: for 3x3 convolutions in NHWC on H100s it recommended
// `sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32`, although benchmarking
// found a faster engine.
#include "cudnn_convolution.h"

#include <stdarg.h>
#include <stdio.h>

#include <algorithm>
#include <cmath>

#include "cost_model.h"
#include "device_model.h"

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

double spatial(const CudnnTensor& tensor) {
  double points = 1;
  for (size_t i = 2; i < tensor.sizes.size(); i++) points *= tensor.sizes[i];
  return points;
}

// A convolution as an implicit GEMM, one per group.
struct Shape {
  GemmShape gemm;
  double groups, channels, filters;  // channels and filters per group
  bool pointwise;                    // 1x1 filter with stride 1
};

Shape shape_of(const Convolution& conv) {
  Shape shape;
  shape.channels = conv.w.sizes[1];
  shape.groups = std::max(1.0, conv.x.sizes[1] / shape.channels);
  shape.filters = conv.w.sizes[0] / shape.groups;
  double taps = spatial(conv.w), strides = 1;
  for (int64_t stride : conv.stride) strides *= stride;
  shape.pointwise = taps == 1 && strides == 1;
  double inputs = conv.x.sizes[0] * spatial(conv.x), outputs = conv.y.sizes[0] * spatial(conv.y);
  switch (conv.pass) {
    case Pass::FORWARD:
      shape.gemm = {outputs, shape.filters, shape.channels * taps, shape.groups};
      break;
    // An input point contributes to this many outputs.
    case Pass::DATA:
      shape.gemm = {inputs, shape.channels, shape.filters * taps / strides, shape.groups};
      break;
    case Pass::FILTER:
      shape.gemm = {shape.filters, shape.channels * taps, outputs, shape.groups};
      break;
  }
  return shape;
}

// --- Layout transforms and padding ---

// Layout transforms reach two thirds of the memory bandwidth: 2.2 TB/s on an H100, 1.3 TB/s on an A100.
constexpr double TRANSFORM_EFFICIENCY = 0.65;

LibraryKernel to_channels_last(const CudnnTensor& tensor, double padded_elements) {
  const char* type = type_name(tensor.type);
  // The last template argument is the compute type: 2 for TF32, 0 for the storage type.
  int kind = tensor.type == CUDNN_DATA_FLOAT ? 2 : 0;
  double bytes = tensor.bytes() + padded_elements * bytes_of_cudnn(tensor.type);
  LibraryKernel kernel =
      memory_kernel(text("void cudnn::engines_precompiled::nchwToNhwcKernel<%s, %s, float, false, true, "
                         "(cudnnKernelDataType_t)%d>"
                         "(cudnn::engines_precompiled::nchw2nhwc_params_t<float>, %s const*, %s*)",
                         type, type, kind, type, type),
                    bytes, padded_elements, TRANSFORM_EFFICIENCY);
  kernel.shared = 2112;
  return kernel;
}

LibraryKernel from_channels_last(const CudnnTensor& tensor) {
  const char* type = type_name(tensor.type);
  LibraryKernel kernel =
      memory_kernel(text("void cudnn::engines_precompiled::nhwcToNchwKernel<%s, %s, float, true, false, "
                         "(cudnnKernelDataType_t)0>"
                         "(cudnn::engines_precompiled::nhwc2nchw_params_t<float>, %s const*, %s*)",
                         type, type, type, type),
                    2 * tensor.bytes(), tensor.elements(), TRANSFORM_EFFICIENCY);
  kernel.shared = 2112;
  return kernel;
}

LibraryKernel add_padding(const CudnnTensor& tensor, double padded_elements) {
  const char* type = type_name(tensor.type);
  return memory_kernel(text("void cudnn::engines_precompiled::nhwcAddPaddingKernel<%s, %s, float, true, "
                            "(cudnnKernelDataType_t)0>"
                            "(int, int, int, int, int, int, int, int, %s const*, %s*, float, float)",
                            type, type, type, type),
                       tensor.bytes() + padded_elements * bytes_of_cudnn(tensor.type), padded_elements);
}

// Converts tensors to what tensor-core engines read and write: channels last, padded to 16 bytes.
class Layouts {
 public:
  void reads(const CudnnTensor& tensor) {
    double channels_per_vector = 16 / bytes_of_cudnn(tensor.type);
    double channels = tensor.sizes[1],
           padded = std::ceil(channels / channels_per_vector) * channels_per_vector;
    double elements = tensor.elements() / channels * padded;
    if (!tensor.is_channels_last()) {
      before.push_back(to_channels_last(tensor, elements));
    } else if (padded != channels) {
      before.push_back(add_padding(tensor, elements));
    } else {
      return;
    }
    workspace_bytes += (int64_t)(elements * bytes_of_cudnn(tensor.type));
  }
  void writes(const CudnnTensor& tensor) {
    if (tensor.is_channels_last()) return;
    after.push_back(from_channels_last(tensor));
    workspace_bytes += (int64_t)tensor.bytes();
  }

  std::vector<LibraryKernel> before, after;
  int64_t workspace_bytes = 0;
};

Layouts layouts_of(const Convolution& conv) {
  Layouts layouts;
  switch (conv.pass) {
    case Pass::FORWARD:
      layouts.reads(conv.x);
      layouts.reads(conv.w);
      layouts.writes(conv.y);
      break;
    case Pass::DATA:
      layouts.reads(conv.w);
      layouts.reads(conv.y);
      layouts.writes(conv.x);
      break;
    case Pass::FILTER:
      layouts.reads(conv.x);
      layouts.reads(conv.y);
      layouts.writes(conv.w);
      break;
  }
  return layouts;
}

// --- Implicit GEMM ---

const char* pass_name(Pass pass) {
  return pass == Pass::FORWARD ? "fprop" : pass == Pass::DATA ? "dgrad" : "wgrad";
}

// The fraction of Hopper's peak that the previous generation's instructions (mma.sync) can reach (Luo et al.,
// "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", 2024). sm80_xmma kernels use only those.
double mma_sync_efficiency() {
  return has_wgmma() ? 0.63 : 1;
}

struct Family {
  bool hopper;
  std::vector<Tile> tiles;
};

std::string tensor_core_name(const Convolution& conv, bool hopper, const Tile& tile, double groups) {
  const char* types = conv.w.type == CUDNN_DATA_HALF       ? "f16f16_f16f32_f32"
                      : conv.w.type == CUDNN_DATA_BFLOAT16 ? "bf16bf16_bf16f32_f32"
                      : hopper                             ? "f32f32_tf32f32_f32"
                                                           : "tf32f32_tf32f32_f32";
  bool single = conv.w.type == CUDNN_DATA_FLOAT;
  const char* pass = pass_name(conv.pass);
  if (hopper)
    return text(
        "sm90_xmma_%s_implicit_gemm_%s_nhwckrsc_nhwc_tilesize%dx%dx%d_warpgroupsize%dx1x1_g1_execute_segment_"
        "k_"
        "off_kernel__5x_cudnn",
        pass, types, tile.rows, tile.columns, single ? 32 : 64, tile.rows >= 256 ? 2 : 1);
  return text(
      "sm80_xmma_%s_implicit_gemm_indexed_%s_nhwckrsc_nhwc_tilesize%dx%dx%d_stage4_warpsize2x2x1_g%.0f_%s_"
      "execute_"
      "kernel__5x_cudnn",
      pass, types, tile.rows, tile.columns, single ? 16 : 32, groups,
      single ? "tensor16x8x8" : "tensor16x8x16");
}

LibraryKernel gemm_kernel(const std::string& name, const Convolution& conv, const Shape& shape,
                          const Tile& tile, double rate) {
  double splits = splits_of(shape.gemm, tile);
  double bytes = conv.x.bytes() + conv.w.bytes() + conv.y.bytes();
  double ns = GEMM_OVERHEAD_NS + std::max(tiled_gemm_ns(shape.gemm, tile, splits, rate), memory_ns(bytes));
  LibraryKernel kernel{
      name, ns,
      dim3(std::ceil(shape.gemm.columns / tile.columns), std::ceil(shape.gemm.rows / tile.rows),
           std::min(shape.gemm.batch * splits, 65535.)),
      dim3(128)};
  kernel.registers = 234;
  kernel.shared = std::min(tile.rows + tile.columns, 384) * 256;
  return kernel;
}

// For split-K kernels: the reduction of the partial sums.
void add_split_sums(ConvolutionPlan& plan, const Convolution& conv, const Shape& shape, const Tile& tile) {
  double splits = splits_of(shape.gemm, tile);
  if (splits == 1) return;
  double partial_bytes = shape.gemm.batch * shape.gemm.rows * shape.gemm.columns * 4;
  plan.workspace_bytes += (int64_t)(partial_bytes * splits);
  std::string name = plan.kernels.back().name;
  size_t at = name.find("execute_kernel");
  if (at != std::string::npos)
    name.replace(at, 14, "execute_split_k_kernel");
  else
    name = "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*, float, int, int)";
  plan.kernels.push_back(memory_kernel(name, partial_bytes * (splits + 1), partial_bytes / 4));
}

void add_tensor_core_plans(std::vector<ConvolutionPlan>& plans, const Convolution& conv, const Shape& shape) {
  Unit unit = conv.w.type == CUDNN_DATA_FLOAT ? Unit::TF32 : Unit::HALF;
  // A convolution is less efficient than a GEMM of the same size, because its rows are gathered.
  std::vector<Family> families;
  std::vector<Tile> tiles = {
      {64, 128, 0.58}, {128, 128, 0.66}, {256, 128, 0.70}, {128, 64, 0.58}, {64, 64, 0.42}};
  // Half of a tile with 128 columns would be empty.
  if (shape.gemm.columns <= 64) std::swap(tiles[0], tiles[4]);
  // This engine does not support weight gradients or groups.
  if (has_wgmma() && conv.pass != Pass::FILTER && shape.groups == 1) families.push_back({true, tiles});
  families.push_back({false, tiles});
  for (const Family& family : families) {
    for (const Tile& tile : family.tiles) {
      double rate = peak_flops(unit) * (family.hopper ? 1 : mma_sync_efficiency());
      Layouts layouts = layouts_of(conv);
      ConvolutionPlan plan;
      plan.tensor_cores = true;
      plan.workspace_bytes = layouts.workspace_bytes;
      plan.kernels = layouts.before;
      plan.kernels.push_back(
          gemm_kernel(tensor_core_name(conv, family.hopper, tile, shape.groups), conv, shape, tile, rate));
      add_split_sums(plan, conv, shape, tile);
      plan.kernels.insert(plan.kernels.end(), layouts.after.begin(), layouts.after.end());
      plans.push_back(std::move(plan));
    }
  }
}

// A 1x1 convolution in NCHW is a GEMM on the matrices as they are, without layout transforms. An A100 uses
// these kernels for the 1x1 convolutions of a ResNet in TF32.
void add_pointwise_plan(std::vector<ConvolutionPlan>& plans, const Convolution& conv, const Shape& shape) {
  if (!shape.pointwise || shape.groups > 1 || conv.x.is_channels_last() || conv.y.is_channels_last()) return;
  Unit unit = conv.w.type == CUDNN_DATA_FLOAT ? Unit::TF32 : Unit::HALF;
  GemmShape gemm = {spatial(conv.x), conv.pass == Pass::DATA ? shape.channels : shape.filters,
                    conv.pass == Pass::DATA ? shape.filters : shape.channels, (double)conv.x.sizes[0]};
  if (conv.pass == Pass::FILTER)
    gemm = {shape.filters, shape.channels, spatial(conv.x), (double)conv.x.sizes[0]};
  Tile tile = gemm.columns > 64 ? Tile{128, 128, 0.66} : Tile{256, 64, 0.60};
  const char* layout = conv.pass == Pass::FORWARD ? "nn" : conv.pass == Pass::DATA ? "nt" : "tn";
  const char* kind = conv.w.type == CUDNN_DATA_HALF       ? "f16_s16816"
                     : conv.w.type == CUDNN_DATA_BFLOAT16 ? "bf16_s16816"
                                                          : "s1688";
  int aligned = (int64_t)spatial(conv.x) % (16 / bytes_of_cudnn(conv.w.type)) == 0
                    ? 16 / bytes_of_cudnn(conv.w.type)
                    : 1;
  std::string name = text("cutlass_80_tensorop_%sgemm_%dx%d_32x3_%s_align%d", kind, tile.rows, tile.columns,
                          layout, aligned);
  Shape gemm_shape = shape;
  gemm_shape.gemm = gemm;
  double rate = peak_flops(unit) * mma_sync_efficiency() * (aligned > 1 ? 1 : 0.3);
  ConvolutionPlan plan;
  plan.tensor_cores = true;
  plan.kernels.push_back(
      gemm_kernel("void cutlass::Kernel<" + name + ">(" + name + "::Params)", conv, gemm_shape, tile, rate));
  if (conv.pass == Pass::FILTER) {
    double partial_bytes = gemm.batch * conv.w.elements() * 4;
    plan.workspace_bytes = (int64_t)partial_bytes;
    plan.kernels.push_back(memory_kernel(
        "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*, float, int, int)",
        partial_bytes, conv.w.elements()));
  }
  plans.push_back(std::move(plan));
}

// Engines that do not use tensor cores and support any layout.
void add_plain_plans(std::vector<ConvolutionPlan>& plans, const Convolution& conv, const Shape& shape) {
  Unit unit = conv.w.type == CUDNN_DATA_DOUBLE ? Unit::FP64 : Unit::FP32;
  bool last = conv.x.is_channels_last() && conv.y.is_channels_last();
  const char* layout = last ? "nhwckrsc_nhwc" : "nchwkcrs_nchw";
  for (const Tile& tile :
       {Tile{64, 64, 0.50}, Tile{32, 32, 0.25}, Tile{128, 128, 0.66}, Tile{128, 64, 0.60}}) {
    ConvolutionPlan plan;
    std::string name =
        unit == Unit::FP64
            ? text(
                  "void implicit_convolve_dgemm<double, double, %d, 5, 5, 3, 3, 3, 1, false, true, true>"
                  "(int, int, int, double const*, int, double*, double const*)",
                  tile.rows)
            : text(
                  "sm80_xmma_%s_implicit_gemm_indexed_f32f32_f32f32_f32_%s_tilesize%dx%dx8_stage3_"
                  "warpsize2x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn",
                  pass_name(conv.pass), layout, tile.rows, tile.columns);
    plan.kernels.push_back(gemm_kernel(name, conv, shape, tile, peak_flops(unit)));
    add_split_sums(plan, conv, shape, tile);
    plans.push_back(std::move(plan));
  }
}

// With one channel per group, filters share no data: such convolutions are memory-bound, at a third of the
// bandwidth.
void add_depthwise_plan(std::vector<ConvolutionPlan>& plans, const Convolution& conv) {
  const char* type = type_name(conv.w.type);
  std::string name = conv.x.is_channels_last()
                         ? text(
                               "void conv2d_c1_k1_nhwc_kernel<%s, %s, %s, float, float, 3, 1, 8, 3, "
                               "5>(float, int, int, int)",
                               type, type, type)
                         : text(
                               "void conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, %s, "
                               "%s, %s, float, float>"
                               "(cudnnTensorStruct, %s const*, cudnnFilterStruct, %s const*)",
                               type, type, type, type, type);
  ConvolutionPlan plan;
  plan.kernels.push_back(
      memory_kernel(name, conv.x.bytes() + conv.y.bytes() + conv.w.bytes(), conv.y.elements(), 0.35));
  plans.push_back(std::move(plan));
}

}  // namespace

double ConvolutionPlan::ns() const {
  double sum = 0;
  for (const LibraryKernel& kernel : kernels) sum += kernel.ns;
  return sum;
}

std::vector<ConvolutionPlan> convolution_plans(const Convolution& convolution) {
  std::vector<ConvolutionPlan> plans;
  if (convolution.x.sizes.size() < 3 || convolution.w.sizes.size() < 3 || convolution.y.sizes.size() < 3)
    return plans;
  Shape shape = shape_of(convolution);
  if (shape.channels == 1 && shape.groups > 1) add_depthwise_plan(plans, convolution);
  if (bytes_of_cudnn(convolution.w.type) <= 4) {
    add_pointwise_plan(plans, convolution, shape);
    add_tensor_core_plans(plans, convolution, shape);
  }
  if (convolution.w.type == CUDNN_DATA_FLOAT || convolution.w.type == CUDNN_DATA_DOUBLE)
    add_plain_plans(plans, convolution, shape);
  return plans;
}

}  // namespace sim
