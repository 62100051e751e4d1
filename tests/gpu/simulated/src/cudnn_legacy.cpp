// cuDNN's handles and tensor descriptors, and its legacy API: convolutions (used by PyTorch with
// TORCH_CUDNN_V8_API_DISABLED=1), pooling, dropout, CTC loss and spatial transformers. Batch normalization
// and recurrent layers have their own files.
#include <string.h>

#include <algorithm>
#include <type_traits>

#include "cudnn_convolution.h"
#include "cudnn_handle.h"
#include "device_model.h"
#include "export.h"
#include "process.h"

using namespace sim;

namespace sim {

int bytes_of_cudnn(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
      return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
      return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    default:
      return 1;
  }
}

const char* type_name(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return "double";
    case CUDNN_DATA_HALF:
      return "__half";
    case CUDNN_DATA_BFLOAT16:
      return "__nv_bfloat16";
    default:
      return "float";
  }
}

double CudnnTensor::elements() const {
  double product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

double CudnnTensor::bytes() const {
  return elements() * bytes_of_cudnn(type);
}

bool CudnnTensor::is_channels_last() const {
  if (sizes.size() < 3 || strides.size() != sizes.size()) return false;
  double points = 1;
  for (size_t i = 2; i < sizes.size(); i++) points *= sizes[i];
  return points == 1 || sizes[1] == 1 || strides[1] == 1;
}

cudnnStatus_t launch_on(cudnnHandle_t handle, const std::vector<LibraryKernel>& kernels) {
  return launch_kernels(stream_of_handle(handle), kernels) ? CUDNN_STATUS_EXECUTION_FAILED
                                                           : CUDNN_STATUS_SUCCESS;
}

LibraryKernel memory_kernel(const std::string& name, double bytes, double elements, double efficiency) {
  LibraryKernel kernel{name, KERNEL_OVERHEAD_NS + memory_ns(bytes, efficiency),
                       dim3(std::max(1.0, std::min(elements / 1024, 1e6))), dim3(256)};
  kernel.registers = 32;
  return kernel;
}

}  // namespace sim

namespace {

struct ConvolutionDescriptor {
  std::vector<int64_t> stride;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

CudnnTensor* tensor(const void* descriptor) {
  return (CudnnTensor*)descriptor;
}

std::vector<int64_t> packed_strides(const std::vector<int64_t>& sizes, bool channels_last) {
  std::vector<int64_t> strides(sizes.size(), 1);
  int64_t next = channels_last && sizes.size() > 1 ? sizes[1] : 1;
  for (size_t i = sizes.size(); i-- > (channels_last ? 2 : 0);) {
    strides[i] = next;
    next *= sizes[i];
  }
  if (channels_last && !sizes.empty()) strides[0] = next;
  return strides;
}

}  // namespace

EXPORT size_t cudnnGetVersion() {
  return CUDNN_VERSION;
}

EXPORT size_t cudnnGetCudartVersion() {
  return CUDART_VERSION;
}

EXPORT const char* cudnnGetErrorString(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return "CUDNN_STATUS_SUCCESS";
  if (status == CUDNN_STATUS_NOT_INITIALIZED) return "CUDNN_STATUS_NOT_INITIALIZED";
  if (status == CUDNN_STATUS_BAD_PARAM) return "CUDNN_STATUS_BAD_PARAM";
  return "CUDNN_STATUS_NOT_SUPPORTED";
}

EXPORT void cudnnGetLastErrorString(char* message, size_t capacity) {
  if (capacity) *message = 0;
}

EXPORT cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value) {
  *value = type == MAJOR_VERSION ? CUDNN_MAJOR : type == MINOR_VERSION ? CUDNN_MINOR : CUDNN_PATCHLEVEL;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (init_context()) return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = (cudnnHandle_t) new CudnnHandle;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete (CudnnHandle*)handle;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  ((CudnnHandle*)handle)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = stream_of_handle(handle);
  return CUDNN_STATUS_SUCCESS;
}

// --- Descriptors ---

#define DESCRIPTOR(NAME, STRUCT)                                                              \
  EXPORT cudnnStatus_t cudnnCreate##NAME##Descriptor(cudnn##NAME##Descriptor_t* descriptor) { \
    *descriptor = (cudnn##NAME##Descriptor_t) new STRUCT;                                     \
    return CUDNN_STATUS_SUCCESS;                                                              \
  }                                                                                           \
  EXPORT cudnnStatus_t cudnnDestroy##NAME##Descriptor(cudnn##NAME##Descriptor_t descriptor) { \
    delete (STRUCT*)descriptor;                                                               \
    return CUDNN_STATUS_SUCCESS;                                                              \
  }
struct EmptyDescriptor {};
DESCRIPTOR(Tensor, CudnnTensor)
DESCRIPTOR(Filter, CudnnTensor)
DESCRIPTOR(Convolution, ConvolutionDescriptor)
DESCRIPTOR(Activation, EmptyDescriptor)
DESCRIPTOR(Dropout, EmptyDescriptor)
DESCRIPTOR(Pooling, EmptyDescriptor)
DESCRIPTOR(CTCLoss, EmptyDescriptor)
DESCRIPTOR(SpatialTransformer, EmptyDescriptor)
#undef DESCRIPTOR

EXPORT cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t descriptor, cudnnDataType_t type,
                                                int count, const int* sizes, const int* strides) {
  tensor(descriptor)->type = type;
  tensor(descriptor)->sizes.assign(sizes, sizes + count);
  tensor(descriptor)->strides.assign(strides, strides + count);
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t descriptor, int capacity,
                                                cudnnDataType_t* type, int* count, int* sizes, int* strides) {
  const CudnnTensor& it = *tensor(descriptor);
  *type = it.type;
  *count = (int)it.sizes.size();
  for (int i = 0; i < std::min(*count, capacity); i++) {
    sizes[i] = (int)it.sizes[i];
    strides[i] = i < (int)it.strides.size() ? (int)it.strides[i] : 1;
  }
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                                cudnnTensorFormat_t format, int count, const int* sizes) {
  tensor(descriptor)->type = type;
  tensor(descriptor)->sizes.assign(sizes, sizes + count);
  tensor(descriptor)->strides = packed_strides(tensor(descriptor)->sizes, format == CUDNN_TENSOR_NHWC);
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t descriptor, int capacity,
                                                cudnnDataType_t* type, cudnnTensorFormat_t* format,
                                                int* count, int* sizes) {
  const CudnnTensor& it = *tensor(descriptor);
  *type = it.type;
  *format = CUDNN_TENSOR_NCHW;
  *count = (int)it.sizes.size();
  for (int i = 0; i < std::min(*count, capacity); i++) sizes[i] = (int)it.sizes[i];
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t descriptor, int count,
                                                     const int*, const int* strides, const int*,
                                                     cudnnConvolutionMode_t, cudnnDataType_t) {
  ((ConvolutionDescriptor*)descriptor)->stride.assign(strides, strides + count);
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t, int) {
  return CUDNN_STATUS_SUCCESS;  // the filter and the input already determine the groups
}

EXPORT cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor,
                                                 cudnnMathType_t math) {
  ((ConvolutionDescriptor*)descriptor)->math = math;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t, cudnnActivationMode_t,
                                                  cudnnNanPropagation_t, double) {
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t, cudnnPoolingMode_t,
                                                 cudnnNanPropagation_t, int, int, int, int, int, int) {
  return CUDNN_STATUS_SUCCESS;
}

// --- Convolutions ---

namespace {

// The plans in the order of the algorithm enum.
std::vector<ConvolutionPlan> plans_of(Pass pass, const void* x, const void* w, const void* y,
                                      const void* descriptor) {
  const auto& convolution = *(const ConvolutionDescriptor*)descriptor;
  Convolution it;
  it.pass = pass;
  it.x = *tensor(x);
  it.w = *tensor(w);
  it.y = *tensor(y);
  it.stride = convolution.stride;
  std::vector<ConvolutionPlan> plans = convolution_plans(it);
  if (it.w.type == CUDNN_DATA_FLOAT && convolution.math == CUDNN_FMA_MATH)
    plans.erase(std::remove_if(plans.begin(), plans.end(), [](auto& plan) { return plan.tensor_cores; }),
                plans.end());
  return plans;
}

template <class Result>
cudnnStatus_t report(const std::vector<ConvolutionPlan>& plans, const std::vector<int>& order, int capacity,
                     int* found, Result* results) {
  *found = 0;
  for (int algorithm : order) {
    if (*found == capacity) break;
    Result& result = results[(*found)++];
    memset(&result, 0, sizeof result);
    result.algo = (decltype(result.algo))algorithm;
    result.status = CUDNN_STATUS_SUCCESS;
    result.time = (float)(plans[algorithm].ns() / 1e6);
    result.memory = (size_t)plans[algorithm].workspace_bytes;
    result.determinism = CUDNN_DETERMINISTIC;
    result.mathType = plans[algorithm].tensor_cores ? CUDNN_TENSOR_OP_MATH : CUDNN_DEFAULT_MATH;
  }
  return *found > 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

std::vector<int> recommended_order(const std::vector<ConvolutionPlan>& plans) {
  std::vector<int> order(std::min<size_t>(plans.size(), 8));  // the enum has at most eight algorithms
  for (size_t i = 0; i < order.size(); i++) order[i] = (int)i;
  return order;
}

// Benchmarks each plan and sorts them by time.
std::vector<int> benchmarked_order(cudnnHandle_t handle, const std::vector<ConvolutionPlan>& plans) {
  std::vector<int> order = recommended_order(plans);
  for (int algorithm : order) launch_kernels(stream_of_handle(handle), plans[algorithm].kernels);
  cudaStreamSynchronize(stream_of_handle(handle));
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return plans[a].ns() < plans[b].ns(); });
  return order;
}

cudnnStatus_t workspace(const std::vector<ConvolutionPlan>& plans, int algorithm, size_t* bytes) {
  if (algorithm < 0 || algorithm >= (int)plans.size()) return CUDNN_STATUS_NOT_SUPPORTED;
  *bytes = (size_t)plans[algorithm].workspace_bytes;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t execute(cudnnHandle_t handle, const std::vector<ConvolutionPlan>& plans, int algorithm) {
  if (algorithm < 0 || algorithm >= (int)plans.size()) return CUDNN_STATUS_NOT_SUPPORTED;
  return launch_on(handle, plans[algorithm].kernels);
}

}  // namespace

EXPORT cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                            const cudnnFilterDescriptor_t w,
                                                            const cudnnConvolutionDescriptor_t convolution,
                                                            const cudnnTensorDescriptor_t y,
                                                            const int capacity, int* found,
                                                            cudnnConvolutionFwdAlgoPerf_t* results) {
  auto plans = plans_of(Pass::FORWARD, x, w, y, convolution);
  return report(plans, recommended_order(plans), capacity, found, results);
}

EXPORT cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx, const int capacity,
    int* found, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  auto plans = plans_of(Pass::DATA, dx, w, dy, convolution);
  return report(plans, recommended_order(plans), capacity, found, results);
}

EXPORT cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw, const int capacity,
    int* found, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  auto plans = plans_of(Pass::FILTER, x, dw, dy, convolution);
  return report(plans, recommended_order(plans), capacity, found, results);
}

EXPORT cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const void*, const cudnnFilterDescriptor_t w,
    const void*, const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y, void*,
    const int capacity, int* found, cudnnConvolutionFwdAlgoPerf_t* results, void*, size_t) {
  auto plans = plans_of(Pass::FORWARD, x, w, y, convolution);
  return report(plans, benchmarked_order(handle, plans), capacity, found, results);
}

EXPORT cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const void*, const cudnnTensorDescriptor_t dy,
    const void*, const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx, void*,
    const int capacity, int* found, cudnnConvolutionBwdDataAlgoPerf_t* results, void*, size_t) {
  auto plans = plans_of(Pass::DATA, dx, w, dy, convolution);
  return report(plans, benchmarked_order(handle, plans), capacity, found, results);
}

EXPORT cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const void*, const cudnnTensorDescriptor_t dy,
    const void*, const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw, void*,
    const int capacity, int* found, cudnnConvolutionBwdFilterAlgoPerf_t* results, void*, size_t) {
  auto plans = plans_of(Pass::FILTER, x, dw, dy, convolution);
  return report(plans, benchmarked_order(handle, plans), capacity, found, results);
}

EXPORT cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                             const cudnnFilterDescriptor_t w,
                                                             const cudnnConvolutionDescriptor_t convolution,
                                                             const cudnnTensorDescriptor_t y,
                                                             cudnnConvolutionFwdAlgo_t algorithm,
                                                             size_t* bytes) {
  return workspace(plans_of(Pass::FORWARD, x, w, y, convolution), algorithm, bytes);
}

EXPORT cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return workspace(plans_of(Pass::DATA, dx, w, dy, convolution), algorithm, bytes);
}

EXPORT cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  return workspace(plans_of(Pass::FILTER, x, dw, dy, convolution), algorithm, bytes);
}

EXPORT cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void*,
                                             const cudnnTensorDescriptor_t x, const void*,
                                             const cudnnFilterDescriptor_t w, const void*,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionFwdAlgo_t algorithm, void*, size_t, const void*,
                                             const cudnnTensorDescriptor_t y, void*) {
  return execute(handle, plans_of(Pass::FORWARD, x, w, y, convolution), algorithm);
}

EXPORT cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void*, const cudnnTensorDescriptor_t x, const void*,
    const cudnnFilterDescriptor_t w, const void*, const cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionFwdAlgo_t algorithm, void*, size_t, const void*, const cudnnTensorDescriptor_t,
    const void*, const cudnnTensorDescriptor_t, const void*, const cudnnActivationDescriptor_t,
    const cudnnTensorDescriptor_t y, void*) {
  return execute(handle, plans_of(Pass::FORWARD, x, w, y, convolution), algorithm);
}

EXPORT cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void*,
                                                  const cudnnFilterDescriptor_t w, const void*,
                                                  const cudnnTensorDescriptor_t dy, const void*,
                                                  const cudnnConvolutionDescriptor_t convolution,
                                                  cudnnConvolutionBwdDataAlgo_t algorithm, void*, size_t,
                                                  const void*, const cudnnTensorDescriptor_t dx, void*) {
  return execute(handle, plans_of(Pass::DATA, dx, w, dy, convolution), algorithm);
}

EXPORT cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void*,
                                                    const cudnnTensorDescriptor_t x, const void*,
                                                    const cudnnTensorDescriptor_t dy, const void*,
                                                    const cudnnConvolutionDescriptor_t convolution,
                                                    cudnnConvolutionBwdFilterAlgo_t algorithm, void*, size_t,
                                                    const void*, const cudnnFilterDescriptor_t dw, void*) {
  return execute(handle, plans_of(Pass::FILTER, x, dw, dy, convolution), algorithm);
}

// --- Pooling, dropout, CTC loss, spatial transformers ---

EXPORT cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t, const void*,
                                         const cudnnTensorDescriptor_t x, const void*, const void*,
                                         const cudnnTensorDescriptor_t y, void*) {
  return launch_on(
      handle, {memory_kernel(
                  "void cudnn::pooling_fw_4d_kernel<float, float, cudnn::maxpooling_func<float, "
                  "(cudnnNanPropagation_t)0>, (cudnnPoolingMode_t)0, false>(cudnnTensorStruct, float const*)",
                  tensor(x)->bytes() + tensor(y)->bytes(), tensor(y)->elements())});
}

EXPORT cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t, size_t* bytes) {
  *bytes = (size_t)model().multiprocessors * 2048 * 48;  // one curandStateXORWOW per resident thread
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t, cudnnHandle_t handle, float, void*,
                                               size_t state_bytes, unsigned long long) {
  return launch_on(
      handle,
      {memory_kernel("void init_rng_kernel<curandStateXORWOW>(curandStateXORWOW*, unsigned long long)",
                     (double)state_bytes, state_bytes / 48., 0.1)});
}

EXPORT cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t, cudnnHandle_t, float, void*,
                                                   size_t, unsigned long long) {
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetCTCLossDescriptorEx(cudnnCTCLossDescriptor_t, cudnnDataType_t,
                                                 cudnnLossNormalizationMode_t, cudnnNanPropagation_t) {
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetCTCLossDescriptor_v9(cudnnCTCLossDescriptor_t, cudnnDataType_t,
                                                  cudnnLossNormalizationMode_t, cudnnCTCGradMode_t, int) {
  return CUDNN_STATUS_SUCCESS;
}

namespace {

// The probabilities, and two tables of the same size.
cudnnStatus_t ctc_workspace(const void* probabilities, size_t* bytes) {
  *bytes = (size_t)(2 * tensor(probabilities)->bytes());
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t ctc_loss(cudnnHandle_t handle, const void* probabilities) {
  double bytes = tensor(probabilities)->bytes(), elements = tensor(probabilities)->elements();
  return launch_on(handle,
                   {memory_kernel("void cudnn::ctc::ctc_loss_kernel<float>(float const*, int const*, float*)",
                                  3 * bytes, elements, 0.2),
                    memory_kernel("void cudnn::ctc::ctc_grad_kernel<float>(float const*, float*)", 3 * bytes,
                                  elements, 0.2)});
}

}  // namespace

EXPORT cudnnStatus_t cudnnGetCTCLossWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t probabilities,
                                                  const cudnnTensorDescriptor_t, const int*, const int*,
                                                  const int*, cudnnCTCLossAlgo_t, cudnnCTCLossDescriptor_t,
                                                  size_t* bytes) {
  return ctc_workspace(probabilities, bytes);
}

EXPORT cudnnStatus_t cudnnGetCTCLossWorkspaceSize_v8(cudnnHandle_t, cudnnCTCLossAlgo_t,
                                                     cudnnCTCLossDescriptor_t,
                                                     const cudnnTensorDescriptor_t probabilities,
                                                     const cudnnTensorDescriptor_t, size_t* bytes) {
  return ctc_workspace(probabilities, bytes);
}

EXPORT cudnnStatus_t cudnnCTCLoss(cudnnHandle_t handle, const cudnnTensorDescriptor_t probabilities,
                                  const void*, const int*, const int*, const int*, void*,
                                  const cudnnTensorDescriptor_t, void*, cudnnCTCLossAlgo_t,
                                  cudnnCTCLossDescriptor_t, void*, size_t) {
  return ctc_loss(handle, probabilities);
}

EXPORT cudnnStatus_t cudnnCTCLoss_v8(cudnnHandle_t handle, cudnnCTCLossAlgo_t, cudnnCTCLossDescriptor_t,
                                     const cudnnTensorDescriptor_t probabilities, const void*, const int*,
                                     const int*, const int*, void*, const cudnnTensorDescriptor_t, void*,
                                     size_t, void*) {
  return ctc_loss(handle, probabilities);
}
