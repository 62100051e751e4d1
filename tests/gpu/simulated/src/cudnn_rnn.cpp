// cuDNN's recurrent layers: the layout of the weight buffer, and one launch per time step.
#include <stdio.h>

#include <algorithm>

#include "cost_model.h"
#include "cudnn_handle.h"
#include "export.h"

using namespace sim;

namespace {

struct Rnn {
  cudnnRNNMode_t mode;
  bool bias, bidirectional;
  cudnnDataType_t type;
  cudnnMathType_t math;
  int64_t input, hidden, projected;
  int layers;

  int directions() const {
    return bidirectional ? 2 : 1;
  }
  int gates() const {
    return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1;
  }
  bool has_projection() const {
    return projected > 0 && projected != hidden;
  }
  int64_t output() const {
    return has_projection() ? projected : hidden;
  }
  // A pseudo layer is one direction of a layer.
  int64_t input_of(int pseudo_layer) const {
    return pseudo_layer / directions() == 0 ? input : output() * directions();
  }
  // Weight elements of a pseudo layer: input matrices of all gates, recurrent matrices, projection, biases.
  int64_t elements_of(int pseudo_layer) const {
    int64_t matrices = gates() * hidden * (input_of(pseudo_layer) + output());
    int64_t projection = has_projection() ? projected * hidden : 0;
    return matrices + projection + (bias ? 2 * gates() * hidden : 0);
  }
  bool tensor_cores() const {
    return type != CUDNN_DATA_DOUBLE && !(type == CUDNN_DATA_FLOAT && math == CUDNN_FMA_MATH);
  }
  double rate() const {
    if (type == CUDNN_DATA_DOUBLE) return peak_flops(Unit::FP64);
    if (!tensor_cores()) return peak_flops(Unit::FP32);
    return peak_flops(type == CUDNN_DATA_FLOAT ? Unit::TF32 : Unit::HALF);
  }
};

struct RnnData {
  cudnnDataType_t type;
  int64_t steps, batch, size;
};

const Rnn& of(const void* descriptor) {
  return *(const Rnn*)descriptor;
}

const RnnData& data_of(const void* descriptor) {
  return *(const RnnData*)descriptor;
}

void set_tensor(cudnnTensorDescriptor_t descriptor, cudnnDataType_t type, std::vector<int64_t> sizes) {
  if (!descriptor) return;
  auto* tensor = (CudnnTensor*)descriptor;
  tensor->type = type;
  tensor->strides.assign(sizes.size(), 1);
  for (size_t i = sizes.size() - 1; i-- > 0;) tensor->strides[i] = tensor->strides[i + 1] * sizes[i + 1];
  tensor->sizes = std::move(sizes);
}

LibraryKernel gemm_kernel(const Rnn& rnn, GemmShape size, const char* layout) {
  const char* types = rnn.type == CUDNN_DATA_HALF       ? "f16f16_f16f32_f32"
                      : rnn.type == CUDNN_DATA_BFLOAT16 ? "bf16bf16_bf16f32_f32"
                      : rnn.tensor_cores()              ? "f32f32_tf32f32_f32"
                                                        : "f32f32_f32f32_f32";
  Tile tile = size.rows > 64 ? Tile{128, 128, 0.66} : Tile{64, 64, 0.42};
  char name[256];
  snprintf(name, sizeof name,
           "sm80_xmma_gemm_%s_%s_n_tilesize%dx%dx%d_stage4_warpsize2x2x1_%s_execute_kernel__5x_cudnn", types,
           layout, tile.rows, tile.columns, rnn.tensor_cores() ? 16 : 8,
           rnn.tensor_cores() ? "tensor16x8x8" : "ffma_aligna4_alignc4");
  double splits = splits_of(size, tile);
  double bytes = size.batch * bytes_of_cudnn(rnn.type) *
                 ((size.rows + size.columns) * size.depth + size.rows * size.columns);
  return {name,
          GEMM_OVERHEAD_NS + std::max(tiled_gemm_ns(size, tile, splits, rnn.rate()), memory_ns(bytes)),
          dim3(std::max(1.0, tiles_of(size, tile) * splits)),
          dim3(128),
          168,
          65536};
}

// For each pseudo layer: one GEMM for the inputs of all time steps, then a GEMM and the gates for each step.
cudnnStatus_t run(cudnnHandle_t handle, const Rnn& rnn, const RnnData& data, const char* gates) {
  std::vector<LibraryKernel> kernels;
  double rows = rnn.gates() * (double)rnn.hidden;
  double state_bytes = (double)data.batch * rows * bytes_of_cudnn(rnn.type) * 2;
  for (int layer = 0; layer < rnn.layers * rnn.directions(); layer++) {
    kernels.push_back(
        gemm_kernel(rnn, {rows, (double)data.steps * data.batch, (double)rnn.input_of(layer), 1}, "tn"));
    for (int64_t step = 0; step < data.steps; step++) {
      kernels.push_back(gemm_kernel(rnn, {rows, (double)data.batch, (double)rnn.output(), 1}, "tn"));
      kernels.push_back(memory_kernel(gates, state_bytes, (double)data.batch * rnn.hidden * 4));
    }
  }
  return launch_on(handle, kernels);
}

}  // namespace

EXPORT cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* descriptor) {
  *descriptor = (cudnnRNNDescriptor_t) new Rnn{};
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t descriptor) {
  delete (Rnn*)descriptor;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* descriptor) {
  *descriptor = (cudnnRNNDataDescriptor_t) new RnnData{};
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor) {
  delete (RnnData*)descriptor;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t descriptor, cudnnRNNAlgo_t,
                                              cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
                                              cudnnDirectionMode_t direction, cudnnRNNInputMode_t,
                                              cudnnDataType_t type, cudnnDataType_t, cudnnMathType_t math,
                                              int32_t input, int32_t hidden, int32_t projected,
                                              int32_t layers, cudnnDropoutDescriptor_t, uint32_t) {
  *(Rnn*)descriptor = {mode,
                       bias != CUDNN_RNN_NO_BIAS,
                       direction == CUDNN_BIDIRECTIONAL,
                       type,
                       math,
                       input,
                       hidden,
                       projected,
                       layers};
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor, cudnnDataType_t type,
                                               cudnnRNNDataLayout_t, int steps, int batch, int size,
                                               const int*, void*) {
  *(RnnData*)descriptor = {type, steps, batch, size};
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t descriptor,
                                                size_t* bytes) {
  const Rnn& rnn = of(descriptor);
  int64_t elements = 0;
  for (int layer = 0; layer < rnn.layers * rnn.directions(); layer++) elements += rnn.elements_of(layer);
  *bytes = (size_t)elements * bytes_of_cudnn(rnn.type);
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t descriptor,
                                               cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                               size_t* work, size_t* reserve) {
  const Rnn& rnn = of(descriptor);
  // States of all time steps, once per gate. Backward also needs the cells and the outputs.
  size_t states = (size_t)data_of(x).steps * data_of(x).batch * rnn.hidden * rnn.layers * rnn.directions() *
                  bytes_of_cudnn(rnn.type);
  *work = states * rnn.gates();
  if (reserve) *reserve = mode == CUDNN_FWD_MODE_TRAINING ? states * (rnn.gates() + 2) : 0;
  return CUDNN_STATUS_SUCCESS;
}

// Linear layers 0 to gates-1 multiply the input, the next ones the previous state, and 2 * gates is the
// projection.
EXPORT cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t descriptor,
                                             int32_t pseudo_layer, size_t, const void* weights,
                                             int32_t linear_layer, cudnnTensorDescriptor_t matrix,
                                             void** matrix_address, cudnnTensorDescriptor_t bias,
                                             void** bias_address) {
  const Rnn& rnn = of(descriptor);
  int gates = rnn.gates(), element = bytes_of_cudnn(rnn.type);
  if (matrix_address) *matrix_address = nullptr;
  if (bias_address) *bias_address = nullptr;
  int64_t start = 0;
  for (int layer = 0; layer < pseudo_layer; layer++) start += rnn.elements_of(layer);
  int64_t of_input = rnn.hidden * rnn.input_of(pseudo_layer), of_state = rnn.hidden * rnn.output();
  int64_t after_matrices = start + gates * (of_input + of_state);
  if (linear_layer == 2 * gates && rnn.has_projection()) {
    if (matrix_address) *matrix_address = (char*)weights + after_matrices * element;
    set_tensor(matrix, rnn.type, {1, rnn.projected, rnn.hidden});
    return CUDNN_STATUS_SUCCESS;
  }
  if (linear_layer >= 2 * gates) return CUDNN_STATUS_SUCCESS;
  bool recurrent = linear_layer >= gates;
  int64_t at = recurrent ? start + gates * of_input + (linear_layer - gates) * of_state
                         : start + linear_layer * of_input;
  if (matrix_address) *matrix_address = (char*)weights + at * element;
  set_tensor(matrix, rnn.type, {1, rnn.hidden, recurrent ? rnn.output() : rnn.input_of(pseudo_layer)});
  if (rnn.bias) {
    int64_t biases = after_matrices + (rnn.has_projection() ? rnn.projected * rnn.hidden : 0);
    if (bias_address) *bias_address = (char*)weights + (biases + linear_layer * rnn.hidden) * element;
    set_tensor(bias, rnn.type, {1, rnn.hidden, 1});
  }
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t descriptor,
                                     cudnnForwardMode_t, const int32_t*, cudnnRNNDataDescriptor_t x,
                                     const void*, cudnnRNNDataDescriptor_t, void*, cudnnTensorDescriptor_t,
                                     const void*, void*, cudnnTensorDescriptor_t, const void*, void*, size_t,
                                     const void*, size_t, void*, size_t, void*) {
  return run(handle, of(descriptor), data_of(x),
             "void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(int, int, "
             "int, int)");
}

EXPORT cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t descriptor,
                                             const int32_t*, cudnnRNNDataDescriptor_t, const void*,
                                             const void*, cudnnRNNDataDescriptor_t x, void*,
                                             cudnnTensorDescriptor_t, const void*, const void*, void*,
                                             cudnnTensorDescriptor_t, const void*, const void*, void*, size_t,
                                             const void*, size_t, void*, size_t, void*) {
  return run(handle, of(descriptor), data_of(x),
             "void LSTM_elementWise_bp1<float, float, float>(int, int, int, int)");
}

EXPORT cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t descriptor,
                                                cudnnWgradMode_t, const int32_t*, cudnnRNNDataDescriptor_t x,
                                                const void*, cudnnTensorDescriptor_t, const void*,
                                                cudnnRNNDataDescriptor_t, const void*, size_t, void*, size_t,
                                                void*, size_t, void*) {
  const Rnn& rnn = of(descriptor);
  std::vector<LibraryKernel> kernels;
  for (int layer = 0; layer < rnn.layers * rnn.directions(); layer++) {
    double inputs = (double)rnn.input_of(layer) + rnn.output(),
           steps = (double)data_of(x).steps * data_of(x).batch;
    kernels.push_back(gemm_kernel(rnn, {rnn.gates() * (double)rnn.hidden, inputs, steps, 1}, "nt"));
  }
  return launch_on(handle, kernels);
}
