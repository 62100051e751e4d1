// cuDNN's batch normalization. The forward pass reads the input twice; the backward pass reads the input and
// the gradient twice.
#include <stdio.h>

#include "cudnn_handle.h"
#include "export.h"

using namespace sim;

namespace {

const CudnnTensor& tensor(const void* descriptor) {
  return *(const CudnnTensor*)descriptor;
}

// NCHW and NHWC have kernels with different names.
cudnnStatus_t normalize(cudnnHandle_t handle, const void* x, const char* name_nchw, const char* name_nhwc,
                        int passes) {
  const CudnnTensor& tensor_desc = tensor(x);
  char name[256];
  const char* type = type_name(tensor_desc.type);
  snprintf(name, sizeof name, tensor_desc.is_channels_last() ? name_nhwc : name_nchw, type);
  return launch_on(handle, {memory_kernel(name, tensor_desc.bytes() * passes, tensor_desc.elements())});
}

}  // namespace

EXPORT cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnActivationDescriptor_t, size_t* bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t,
    const cudnnTensorDescriptor_t, const cudnnTensorDescriptor_t, const cudnnActivationDescriptor_t,
    size_t* bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t, cudnnBatchNormMode_t,
                                                                          cudnnBatchNormOps_t,
                                                                          const cudnnActivationDescriptor_t,
                                                                          const cudnnTensorDescriptor_t,
                                                                          size_t* bytes) {
  *bytes = 0;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t, cudnnBatchNormOps_t, const void*, const void*,
    const cudnnTensorDescriptor_t x, const void*, const cudnnTensorDescriptor_t, const void*,
    const cudnnTensorDescriptor_t, void*, const cudnnTensorDescriptor_t, const void*, const void*, double,
    void*, void*, double, void*, void*, const cudnnActivationDescriptor_t, void*, size_t, void*, size_t) {
  return normalize(
      handle, x,
      "void cudnn::bn_fw_tr_1C11_kernel_NCHW<%s, float, int, 512, true, 1, true>(cudnnTensorStruct, void "
      "const*)",
      "void cudnn::batchnorm_fwtr_nhwc_semiPersist<%s, float, 512, 2, 2, 4, 0, false>(cudnnTensorStruct)", 3);
}

EXPORT cudnnStatus_t cudnnBatchNormalizationForwardInference(cudnnHandle_t handle, cudnnBatchNormMode_t,
                                                             const void*, const void*,
                                                             const cudnnTensorDescriptor_t x, const void*,
                                                             const cudnnTensorDescriptor_t, void*,
                                                             const cudnnTensorDescriptor_t, const void*,
                                                             const void*, const void*, const void*, double) {
  return normalize(handle, x, "void cudnn::bn_fw_inf_1C11_kernel_NCHW<%s, float, true, 1>(float, float)",
                   "void cudnn::bn_fw_inf_1C11_kernel_NHWC<%s, float, true, 1>(float, float)", 2);
}

EXPORT cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t, cudnnBatchNormOps_t, const void*, const void*, const void*,
    const void*, const cudnnTensorDescriptor_t x, const void*, const cudnnTensorDescriptor_t, const void*,
    const cudnnTensorDescriptor_t, const void*, const cudnnTensorDescriptor_t, void*,
    const cudnnTensorDescriptor_t, void*, const cudnnTensorDescriptor_t, const void*, const void*, void*,
    void*, double, const void*, const void*, const cudnnActivationDescriptor_t, void*, size_t, void*,
    size_t) {
  return normalize(
      handle, x,
      "void cudnn::bn_bw_1C11_kernel_new<%s, float, float2, 512, true, 1>(float, float, float, float, "
      "cudnnTensorStruct)",
      "void cudnn::batchnorm_bwtr_nhwc_semiPersist<%s, float, 512, 2, 2, 4, 0, false>(cudnnTensorStruct)", 5);
}
