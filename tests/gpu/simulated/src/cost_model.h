// How long a kernel takes.
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

namespace sim {

// A kernel that was compiled into PyTorch or by Triton, by its (mangled) name, launch shape and arguments.
// `args` may be null.
uint64_t kernel_ns(const char* name, dim3 grid, dim3 block, void** args);

// A matrix multiplication (m × k) · (k × n), `batch` times.
uint64_t gemm_ns(double m, double n, double k, double batch, int type_bits, bool tf32);

}  // namespace sim
