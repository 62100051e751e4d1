#include "functions.h"

#include <string.h>
#include <algorithm>

#include "cost_model.h"
#include "device_model.h"

namespace sim {

// Register counts that Kineto reports for these kernels on an H100 (PyTorch 2.4 and later). PyTorch's
// libraries hold their kernels compressed, so the real counts cannot be read from there.
int assumed_registers(const char* name) {
  static const struct {
    const char* part;
    int registers;
  } known[] = {{"flash_bwd", 255},
               {"flash_fwd", 255},
               {"fmha_cutlass", 168},
               {"vectorized_elementwise_kernel", 24},
               {"index_elementwise_kernel", 40},
               {"elementwise_kernel_with_index", 16},
               {"unrolled_elementwise_kernel", 32},
               {"elementwise_kernel", 20},
               {"layer_norm", 34},
               {"nll_loss", 34},
               {"CatArrayBatchedCopy", 29},
               {"max_pool_forward", 26}};
  for (const auto& each : known)
    if (strstr(name, each.part)) return each.registers;
  return 32;
}

static int max_dynamic_shared(const Function& function) {
  if (function.dynamic_shared_limit >= 0) return function.dynamic_shared_limit;
  return 49152 - function.static_shared;
}

int launch_function(const Function& function, dim3 grid, dim3 block, void** arguments, size_t dynamic_shared,
                    Stream* stream, uint64_t entered, uint32_t correlation) {
  if (!stream) return cudaErrorInvalidResourceHandle;
  uint64_t threads = (uint64_t)block.x * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64) return cudaErrorInvalidConfiguration;
  if (!grid.x || !grid.y || !grid.z || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535)
    return cudaErrorInvalidConfiguration;
  if (dynamic_shared > (size_t)std::max(0, max_dynamic_shared(function))) return cudaErrorInvalidValue;
  if (threads > (uint64_t)function.max_threads || threads * function.registers > 65536)
    return cudaErrorLaunchOutOfResources;

  Op op;
  op.name = function.name;
  op.grid = grid;
  op.block = block;
  op.dynamic_shared = dynamic_shared;
  op.static_shared = function.static_shared;
  op.registers = function.registers;
  op.duration_ns = kernel_ns(function.name, grid, block, arguments);
  if (!stream->capture) spin_until(entered + launch_host_ns());
  return enqueue(stream, std::move(op), correlation);
}

// The rules of CUDA's occupancy calculator: registers are allocated per warp in units of 256, in four
// sub-partitions; shared memory in units of 128 bytes (256 on Volta); from compute capability 8.0 on, the
// driver reserves 1 KiB per block.
int occupancy(const Function& function, int threads, size_t dynamic_shared) {
  const DeviceModel& m = model();
  if (threads <= 0 || threads > std::min(1024, function.max_threads)) return 0;
  if (dynamic_shared > (size_t)std::max(0, max_dynamic_shared(function))) return 0;
  int warps = (threads + 31) / 32;
  int by_warps = m.threads_per_sm / 32 / warps;
  int per_warp = (function.registers * 32 + 255) / 256 * 256;
  int by_registers = per_warp ? 65536 / 4 / per_warp * 4 / warps : m.blocks_per_sm;
  int unit = m.major >= 8 ? 128 : 256;
  int64_t shared = function.static_shared + (int64_t)dynamic_shared + m.reserved_shared_per_block;
  shared = (shared + unit - 1) / unit * unit;
  int by_shared = shared ? (int)(m.shared_memory_per_sm / shared) : m.blocks_per_sm;
  return std::max(0, std::min({m.blocks_per_sm, by_warps, by_registers, by_shared}));
}

}  // namespace sim
