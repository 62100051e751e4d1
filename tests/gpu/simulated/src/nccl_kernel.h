// The kernel of one NCCL group: its name, its shape, and how long it takes once all ranks are there.
#pragma once

#include "nccl_communicator.h"

namespace sim {

// Bytes that one rank gives to a task.
size_t given_bytes(const Task& task, int ranks);
uint64_t transfer_ns(const std::vector<Task>& tasks, int ranks);
Op kernel_of(const std::vector<Task>& tasks, int ranks);
// Launches it as NCCL does, by cuLaunchKernelEx. Returns a CUDA error code.
int launch_kernel_ex(cudaStream_t stream, Op op);

}  // namespace sim
