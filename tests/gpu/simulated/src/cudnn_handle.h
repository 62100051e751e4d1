// Types and functions shared by the cuDNN files.
#pragma once

#include <cudnn.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "gemm.h"

namespace sim {

struct CudnnHandle {
  cudaStream_t stream = nullptr;
};

inline cudaStream_t stream_of_handle(cudnnHandle_t handle) {
  return ((CudnnHandle*)handle)->stream;
}

cudnnStatus_t launch_on(cudnnHandle_t handle, const std::vector<LibraryKernel>& kernels);

// A tensor descriptor of either API. Sizes and strides are in the order N, C, spatial dimensions.
struct CudnnTensor {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> sizes, strides;

  double elements() const;
  double bytes() const;
  // Also true where the layouts do not differ (a single channel or a single point).
  bool is_channels_last() const;
};

int bytes_of_cudnn(cudnnDataType_t type);

// The C++ name of the type in kernel names: `float`, `__half`, `__nv_bfloat16`.
const char* type_name(cudnnDataType_t type);

// A memory-bound kernel that moves `bytes`, with four elements per thread.
LibraryKernel memory_kernel(const std::string& name, double bytes, double elements, double efficiency = 0.8);

}  // namespace sim
