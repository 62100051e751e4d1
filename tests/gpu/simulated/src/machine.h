// What is known on the simulated machine of a GPU, whichever process asks: processes, memory, how busy it is.
#pragma once

#include <stdint.h>

#include <vector>

namespace sim {

struct GpuProcess {
  int pid;
  uint64_t bytes;
};

// Processes with a context on the GPU, those of SIMGPU_OTHER_PROCESSES=PID:MB,… included.
std::vector<GpuProcess> gpu_processes(int physical_device);
uint64_t bytes_of_others(int physical_device);
// Share of the last 500 ms in which a kernel ran, and kernel time since the processes started.
double gpu_busy(int physical_device);
uint64_t gpu_busy_ns(int physical_device);

}  // namespace sim
