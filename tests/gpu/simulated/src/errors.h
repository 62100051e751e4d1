// CUDA error codes: the last error of each thread, and asynchronous errors.
#pragma once

#include <cuda_runtime_api.h>

#include "process.h"

namespace sim {

// Records the error for cudaGetLastError and returns it.
cudaError_t fail(int error);

// Records a kernel's error. The first call after the kernel ran reports it, and so does every later call: the
// context is unusable from then on.
void fail_asynchronously(int error, uint64_t at, const char* message = nullptr);
int sticky_error();               // 0 until the error becomes visible
bool failed_before(uint64_t at);  // true if work that starts at this time does not run

}  // namespace sim

// Creates the context if the runtime API call needs one.
#define NEED_CONTEXT()                                              \
  do {                                                              \
    if (int error_ = sim::init_context()) return sim::fail(error_); \
  } while (0)
