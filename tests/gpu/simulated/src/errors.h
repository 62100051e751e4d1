// CUDA error codes: what the calling thread failed with last, and errors that arrive later.
#pragma once

#include <cuda_runtime_api.h>

#include "process.h"

namespace sim {

// Notes the error for cudaGetLastError and returns it.
cudaError_t fail(int error);

// An error of a kernel. It is noticed by the first call after the time at which the kernel ran, and by every
// call after that: the context cannot be used any more.
void fail_asynchronously(int error, uint64_t at, const char* message = nullptr);
int sticky_error();               // 0 as long as no call can notice one
bool failed_before(uint64_t at);  // work that would start at this time does not run

}  // namespace sim

// Creates the context that a call of the runtime API needs.
#define NEED_CONTEXT()                                              \
  do {                                                              \
    if (int error_ = sim::init_context()) return sim::fail(error_); \
  } while (0)
