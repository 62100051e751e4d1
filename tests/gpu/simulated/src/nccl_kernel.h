// The kernel of one NCCL group: its name, its launch configuration, and its duration once all ranks have
// arrived.
#pragma once

#include "nccl_communicator.h"

namespace sim {

// Bytes that one rank contributes to a task.
size_t contribution_bytes(const Task& task, int ranks);
uint64_t transfer_ns(const std::vector<Task>& tasks, int ranks);
Op kernel_of(const std::vector<Task>& tasks, int ranks);
// Launches the kernel with cuLaunchKernelEx, as NCCL does. Returns a CUDA error code.
int launch_kernel_ex(cudaStream_t stream, Op op);

}  // namespace sim
