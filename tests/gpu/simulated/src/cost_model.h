// How long work takes on the simulated device.
//
// Kernels are limited by arithmetic or by memory, and by how their tiles fill the multiprocessors. The rates
// are those of the data sheet times an efficiency; where a recorded trace shows what is reached, its GPU is
// named.
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

namespace sim {

// Where products are computed.
enum class Unit { FP64, FP32, TF32, HALF, FP8 };

// Peak rate of a unit at the clock that the device runs at, FLOP/s.
double peak_flops(Unit unit);

bool has_tf32();
// Whether there are instructions of a whole warp group (Hopper and the Blackwell of data centers), without
// which these GPUs stay below two thirds of their peak.
bool has_wgmma();

// A tile of the result that one thread block computes, and the share of the peak that a device full of them
// reaches.
struct Tile {
  int rows, columns;
  double efficiency;
};

// (rows × depth) · (depth × columns), `batch` times.
struct Product {
  double rows, columns, depth, batch;
};

// How many tiles the result has.
double tiles_of(const Product& product, const Tile& tile);

// Arithmetic in tiles: whole waves over the multiprocessors, each tile's depth divided among `splits` blocks.
// `rate` is the FLOP/s of the device at full efficiency.
double tiled_ns(const Product& product, const Tile& tile, double splits, double rate);

// How many blocks share the depth of each tile: as many as there are idle multiprocessors.
double splits_of(const Product& product, const Tile& tile);

// Reading and writing that many bytes. What fits into half of the L2 cache is twice as fast.
double memory_ns(double bytes, double efficiency = 0.9);

// The least that a kernel takes, and what starting and draining adds to one that multiplies.
constexpr double LAUNCH_NS = 1400;
constexpr double PRODUCT_NS = 2500;

// The time on the current device, as it is enqueued: SIMGPU_KERNEL_US replaces it, SIMGPU_SLOWDOWN multiplies
// it.
uint64_t duration(double ns);

// A kernel that was compiled into PyTorch or by Triton, by its (mangled) name, launch shape and arguments.
// `args` may be null.
uint64_t kernel_ns(const char* name, dim3 grid, dim3 block, void** args);

}  // namespace sim
