#include "nccl_kernel.h"

#include <algorithm>
#include <string>

#include "cupti.h"
#include "device_model.h"
#include "nccl_data.h"
#include "process.h"

namespace sim {
namespace {

// NVLink bandwidth per direction (data sheets). NCCL reaches about four fifths of it as the "bus bandwidth"
// of nccl-tests.
double bus_bandwidth() {
  return 0.8 * (model().major >= 9 ? 450e9 : 300e9);
}
// The kernel's own overhead, and one hop between two GPUs.
constexpr uint64_t kKernelNs = 6000, kHopNs = 1500;
// Host time of a launch. With 4 KiB of kernel arguments it is longer than for other kernels: 10 to 18 µs in
// traces of DDP on an A100.
constexpr uint64_t kLaunchHostNs = 12000;

// NCCL compiles one kernel per collective and type (generate.py, best_kernel), which also runs other
// reductions and algorithms.
std::string kernel_name(const Task& task) {
  std::string type = name_of(task.type);
  switch (task.kind) {
    case Task::ALL_REDUCE:
      return "ncclDevKernel_AllReduce_Sum_" + type + "_RING_LL";
    case Task::REDUCE_SCATTER:
      return "ncclDevKernel_ReduceScatter_Sum_" + type + "_RING_LL";
    case Task::ALL_GATHER:
      return "ncclDevKernel_AllGather_RING_LL";
    case Task::BROADCAST:
      return "ncclDevKernel_Broadcast_RING_LL";
    case Task::REDUCE:
      return "ncclDevKernel_Reduce_Sum_" + type + "_RING_LL";
    default:
      return "ncclDevKernel_SendRecv";
  }
}

}  // namespace

size_t contribution_bytes(const Task& task, int ranks) {
  return task.count * bytes_of(task.type) * (task.kind == Task::REDUCE_SCATTER ? ranks : 1);
}

// The bytes that a ring moves over each link, as derived in PERFORMANCE.md of nccl-tests. A send and a
// receive use different directions of the link.
uint64_t transfer_ns(const std::vector<Task>& tasks, int ranks) {
  double bytes = 0, sent = 0, received = 0;
  int hops = 0;
  for (const Task& task : tasks) {
    double given = contribution_bytes(task, ranks);
    switch (task.kind) {
      case Task::ALL_REDUCE:
        bytes += 2 * given * (ranks - 1) / ranks;
        hops = std::max(hops, 2 * (ranks - 1));
        break;
      case Task::REDUCE_SCATTER:
        bytes += given * (ranks - 1) / ranks;
        hops = std::max(hops, ranks - 1);
        break;
      case Task::ALL_GATHER:
        bytes += given * (ranks - 1);
        hops = std::max(hops, ranks - 1);
        break;
      case Task::BROADCAST:
      case Task::REDUCE:
        bytes += given;
        hops = std::max(hops, ranks - 1);
        break;
      case Task::SEND:
        sent += given;
        hops = std::max(hops, 1);
        break;
      case Task::RECEIVE:
        received += given;
        hops = std::max(hops, 1);
    }
  }
  return kKernelNs + kHopNs * hops + (uint64_t)(1e9 * (bytes + std::max(sent, received)) / bus_bandwidth());
}

Op kernel_of(const std::vector<Task>& tasks, int ranks) {
  std::string name = kernel_name(tasks[0]);
  size_t bytes = 0;
  for (const Task& task : tasks) bytes += contribution_bytes(task, ranks);
  Op op;
  op.name = intern("_Z" + std::to_string(name.size()) + name + "24ncclDevKernelArgsStorageILm4096EE");
  // One block per channel of the ring.
  op.grid = dim3(std::clamp<size_t>(bytes >> 16, 2, model().major >= 9 ? 24 : 16));
  op.block = dim3(is_message(tasks[0]) ? 640 : 544);
  op.registers = 96;
  op.dynamic_shared = 82240;
  return op;
}

int launch_kernel_ex(cudaStream_t stream, Op op) {
  uint64_t entered = now();
  DRIVER_CALL(cuLaunchKernelEx);
  Stream* on = stream_of(stream);
  spin_until(entered + kLaunchHostNs);
  return on ? enqueue(on, std::move(op), api.correlation) : cudaErrorInvalidResourceHandle;
}

}  // namespace sim
