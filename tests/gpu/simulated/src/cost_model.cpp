#include "cost_model.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cmath>

#include "device_model.h"
#include "process.h"

namespace sim {

namespace {

double data_sheet_flops(Unit unit) {
  const DeviceModel& device = model();
  switch (unit) {
    case Unit::FP64:
      return device.fp64_flops;
    case Unit::TF32:
      return has_tf32() ? device.tf32_flops : device.fp32_flops;
    case Unit::HALF:
      return device.fp16_flops;
    case Unit::FP8:
      return device.fp8_flops > 0 ? device.fp8_flops : device.fp16_flops;
    default:
      return device.fp32_flops;
  }
}

}  // namespace

double peak_flops(Unit unit) {
  return data_sheet_flops(unit) * current_clock_mhz() / model().clock_mhz;
}

bool has_tf32() {
  return model().tf32_flops > 0;
}

bool has_wgmma() {
  return model().major == 9 || model().major == 10;
}

double tiles_of(const GemmShape& shape, const Tile& tile) {
  return shape.batch * std::ceil(shape.rows / tile.rows) * std::ceil(shape.columns / tile.columns);
}

double tiled_gemm_ns(const GemmShape& shape, const Tile& tile, double splits, double rate) {
  double waves = std::ceil(tiles_of(shape, tile) * splits / model().multiprocessors);
  double flops_per_tile = 2.0 * tile.rows * tile.columns * std::ceil(shape.depth / splits);
  double rate_per_sm = rate * tile.efficiency / model().multiprocessors;
  return 1e9 * waves * flops_per_tile / rate_per_sm;
}

double splits_of(const GemmShape& shape, const Tile& tile) {
  double idle = std::floor(model().multiprocessors / tiles_of(shape, tile));
  double useful = std::floor(shape.depth / 512);  // shorter splits do not pay for the reduction
  return std::max(1.0, std::min({idle, useful, 64.0}));
}

double memory_ns(double bytes, double efficiency) {
  // An elementwise add on an H100 moves 3.35 TB/s if its tensors fit in L2, and 2.9 TB/s otherwise. L2 itself
  // has more than twice the bandwidth of device memory.
  double speed = bytes < model().l2_bytes / 2 ? 2 : 1;
  return 1e9 * bytes / (model().bandwidth * efficiency * speed);
}

// SIMGPU_SLOWDOWN is one factor for all GPUs, or GPU:FACTOR,… for individual GPUs.
static double slowdown() {
  static const char* text = getenv("SIMGPU_SLOWDOWN");
  if (!text) return 1;
  if (!strchr(text, ':')) return std::max(0.01, atof(text));
  int gpu = visible_to_physical(current_device());
  for (const char* at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : nullptr) {
    char* factor;
    if (strtol(at, &factor, 10) == gpu && *factor == ':') return std::max(0.01, atof(factor + 1));
  }
  return 1;
}

uint64_t duration(double ns) {
  static const char* constant = getenv("SIMGPU_KERNEL_US");
  return (uint64_t)((constant ? atof(constant) * 1000 : ns) * slowdown());
}

}  // namespace sim
