// Kernels as the runtime and the driver know them: name, resources, limits.
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
  int registers = 32;             // of a thread
  int static_shared = 0;          // bytes that a block declares
  int max_threads = 1024;         // of a block
  int dynamic_shared_limit = -1;  // as cudaFuncSetAttribute raised it; -1: what is left of 48 KiB
};

// Registers of a thread of a kernel of PyTorch, by its mangled name.
int assumed_registers(const char* name);

// Launches a kernel. Returns a CUDA error code.
int launch_function(const Function& function, dim3 grid, dim3 block, void** arguments, size_t dynamic_shared,
                    Stream* stream, uint64_t entered, uint32_t correlation);

// Blocks of the kernel that a multiprocessor holds at once.
int occupancy(const Function& function, int threads, size_t dynamic_shared);

// The kernels of a cubin (ELF), a fat binary or PTX text, with the resources that the compiler gave them.
// Empty where the image is of no known form; PTX is compiled with ptxas where SIMGPU_PTXAS names it.
std::vector<Function> functions_of_image(const void* image);

}  // namespace sim
