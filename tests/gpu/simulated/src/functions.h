// Kernels, for both the runtime and the driver API: name, resource usage, limits.
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "timeline.h"

namespace sim {

struct Function {
  const char* name;
  int registers = 32;             // per thread
  int static_shared = 0;          // bytes declared per block
  int max_threads = 1024;         // per block
  int dynamic_shared_limit = -1;  // set by cudaFuncSetAttribute; -1: the rest of 48 KiB
};

// Registers per thread of one of PyTorch's kernels, by mangled name.
int assumed_registers(const char* name);

// Launches a kernel. Returns a CUDA error code.
int launch_function(const Function& function, dim3 grid, dim3 block, void** arguments, size_t dynamic_shared,
                    Stream* stream, uint64_t entered, uint32_t correlation);

// Resident blocks of the kernel per SM.
int occupancy(const Function& function, int threads, size_t dynamic_shared);

// The kernels of a cubin (ELF), a fat binary or PTX text, with the resource usage that the compiler recorded.
// Empty if the format is unknown. PTX is compiled with the ptxas of SIMGPU_PTXAS, if set.
std::vector<Function> functions_of_image(const void* image);

}  // namespace sim
