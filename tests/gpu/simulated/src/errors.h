// CUDA error codes: what the calling thread failed with last, and its name and text.
#pragma once

#include <cuda_runtime_api.h>

#include "process.h"

namespace sim {

// Notes the error for cudaGetLastError and returns it.
cudaError_t fail(int error);

}  // namespace sim

// Creates the context that a call of the runtime API needs.
#define NEED_CONTEXT()                                              \
  do {                                                              \
    if (int error_ = sim::init_context()) return sim::fail(error_); \
  } while (0)
