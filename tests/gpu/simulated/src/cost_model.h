// Estimates how long work takes on the simulated device.
//
// A kernel is limited by compute or by memory bandwidth, and by how well its tiles fill the SMs. Rates are
// data-sheet peaks times an efficiency. Where the efficiency comes from a recorded trace, the comment names
// the GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

namespace sim {

// The arithmetic units that run matrix multiplications.
enum class Unit { FP64, FP32, TF32, HALF, FP8 };

// Peak FLOP/s of a unit at the current clock.
double peak_flops(Unit unit);

bool has_tf32();
// Whether the GPU has warp-group matrix instructions: wgmma on Hopper, and their successor on data-center
// Blackwell. Without them, these GPUs stay below two thirds of their peak.
bool has_wgmma();

// The output tile of one thread block, and the fraction of peak reached when such tiles fill the device.
struct Tile {
  int rows, columns;
  double efficiency;
};

// A batch of matrix multiplications: (rows × depth) · (depth × columns).
struct GemmShape {
  double rows, columns, depth, batch;
};

// The number of output tiles.
double tiles_of(const GemmShape& shape, const Tile& tile);

// Compute time of a tiled GEMM in full waves over the SMs. The depth of each tile is divided among `splits`
// blocks. `rate` is the FLOP/s of the device at full efficiency.
double tiled_gemm_ns(const GemmShape& shape, const Tile& tile, double splits, double rate);

// The number of blocks that share the depth of each tile (split-K), chosen to fill idle SMs.
double splits_of(const GemmShape& shape, const Tile& tile);

// Time to read and write `bytes`. Data that fits in half of the L2 cache is twice as fast.
double memory_ns(double bytes, double efficiency = 0.9);

// The shortest kernel time, and the start-up and drain overhead of a GEMM.
constexpr double KERNEL_OVERHEAD_NS = 1400;
constexpr double GEMM_OVERHEAD_NS = 2500;

// The duration to use for work enqueued on the current device: SIMGPU_KERNEL_US replaces it, and
// SIMGPU_SLOWDOWN scales it.
uint64_t duration(double ns);

// The duration of a kernel compiled into PyTorch or by Triton, from its mangled name, launch configuration
// and arguments. `args` may be null.
uint64_t kernel_ns(const char* name, dim3 grid, dim3 block, void** args);

}  // namespace sim
