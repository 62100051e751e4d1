// State of a GPU across all processes of the simulated machine: processes, memory, utilization.
#pragma once

#include <stdint.h>

#include <vector>

namespace sim {

struct GpuProcess {
  int pid;
  uint64_t bytes;
};

// Processes with a context on the GPU, including those of SIMGPU_OTHER_PROCESSES=PID:MB,….
std::vector<GpuProcess> gpu_processes(int physical_device);
uint64_t other_processes_bytes(int physical_device);
// Utilization over the last 500 ms, and total kernel time of the running processes.
double gpu_busy(int physical_device);
uint64_t gpu_busy_ns(int physical_device);

}  // namespace sim
