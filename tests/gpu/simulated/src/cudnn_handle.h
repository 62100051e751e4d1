// What the legacy and the backend API of cuDNN share.
#pragma once

#include <cudnn.h>

namespace sim {

struct CudnnHandle {
  cudaStream_t stream = nullptr;
};

// Launches a kernel of about this many threads.
void launch_cudnn(cudnnHandle_t handle, const char* name, double duration_ns, double threads);

}  // namespace sim
