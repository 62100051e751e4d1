// How long a kernel takes.
#include "cost_model.h"
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include "device_model.h"
namespace sim {
uint64_t gemm_ns(double m, double n, double k, double b, int bits, bool tf32) {
  const auto& d = model();
  double peak = bits == 64   ? d.fp64_flops
                : bits == 32 ? (tf32 ? d.tf32_flops : d.fp32_flops)
                : bits == 16 ? d.fp16_flops
                             : d.fp8_flops;
  double flops = 2 * m * n * k * b, bytes = (m * k + k * n + m * n) * b * bits / 8;
  // Whole tiles of 128x128 fill whole waves.
  double tiles = b * ((m + 127) / 128 < 1 ? 1 : (long)((m + 127) / 128)) *
                 ((n + 127) / 128 < 1 ? 1 : (long)((n + 127) / 128));
  double waves = tiles / d.multiprocessors, full = waves < 1 ? 1 : (double)(long)(waves + 0.999);
  double eff = 0.7 * waves / full;
  if (eff < 0.02) eff = 0.02;
  return (uint64_t)(1e9 * std::max(flops / (peak * eff), bytes / (0.8 * d.bandwidth))) + 2000;
}
uint64_t kernel_ns(const char* name, dim3 g, dim3 b, void** args) {
  const auto& d = model();
  double blocks = (double)g.x * g.y * g.z, threads = blocks * b.x * b.y * b.z, bytes = threads * 16;
  static const bool constant = getenv("SIMGPU_KERNEL_US") != nullptr;
  if (constant) return (uint64_t)(atof(getenv("SIMGPU_KERNEL_US")) * 1000);
  if (name && strstr(name, "elementwise_kernel") && args && args[0]) {
    // at::native::*elementwise_kernel<..., std::array<char*, K>>(int N, ...)
    int n = *(int*)args[0];
    int k = 3;
    const char* a = strstr(name, "5arrayIPcLm");
    if (a) k = atoi(a + 11);
    int size = strstr(name, "BFloat16") || strstr(name, "Half") ? 2 : strstr(name, "Id") ? 8 : 4;
    if (n > 0) bytes = (double)n * k * size;
  }
  if (name && strstr(name, "spin_kernel") && args && args[0])
    return 1000 + (uint64_t)(*(int64_t*)args[0] * 1e3 / d.clock_mhz);  // torch.cuda._sleep
  if (name && (strstr(name, "flash") || strstr(name, "fmha")))
    return 3000 + (uint64_t)(blocks / d.multiprocessors * 8000);
  return 1500 + (uint64_t)(1e9 * bytes / (0.8 * d.bandwidth));
}
}  // namespace sim
