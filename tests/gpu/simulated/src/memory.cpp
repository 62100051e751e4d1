#include "memory.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>

#include "device_model.h"
#include "machine.h"
#include "process.h"
#include "timeline.h"

namespace sim {

namespace {

std::map<char*, Range>& ranges() {
  static auto* all = new std::map<char*, Range>;
  return *all;
}
uint64_t allocated[kMaxDevices];

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

bool charge(int device, int64_t bytes) {
  Lock lock(mu);
  if (bytes > 0 && (uint64_t)bytes > free_bytes(device)) return false;
  allocated[device] += bytes;
  if (SharedUsage* usage = shared_usage(device)) usage->used_bytes = used_bytes(device);
  return true;
}

void add_range(const Range& range) {
  Lock lock(mu);
  ranges()[range.base] = range;
}

void remove_range(void* base) {
  Lock lock(mu);
  ranges().erase((char*)base);
}

// Simulated kernels never write, so these pages use no host memory until a copy or a fill touches them.
void* reserve_pages(size_t bytes, bool accessible) {
  int protection = accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
  char* raw = (char*)mmap(nullptr, bytes + kGranularity, protection,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* base = (char*)round_up((uintptr_t)raw, kGranularity);
  if (base > raw) munmap(raw, base - raw);
  if (base < raw + kGranularity) munmap(base + bytes, raw + kGranularity - base);
  madvise(base, bytes, MADV_NOHUGEPAGE);
  return base;
}

int dev_malloc(void** out, size_t bytes, RangeKind kind) {
  *out = nullptr;
  if (bytes == 0) return 0;
  Lock lock(mu);
  int device = current_device();
  // The driver allocates memory in pages of 2 MiB.
  size_t size = round_up(bytes, kGranularity);
  if (size < bytes || !charge(device, (int64_t)size)) return cudaErrorMemoryAllocation;
  void* base = reserve_pages(size, true);
  if (!base) {
    charge(device, -(int64_t)size);
    return cudaErrorMemoryAllocation;
  }
  add_range({(char*)base, size, kind, device});
  *out = base;
  return 0;
}

int dev_free(void* address) {
  if (!address) return 0;
  finish_effects();
  Lock lock(mu);
  auto found = ranges().find((char*)address);
  if (found == ranges().end() || found->second.kind == kPinnedMemory) return cudaErrorInvalidValue;
  munmap(address, found->second.size);
  charge(found->second.device, -(int64_t)found->second.size);
  ranges().erase(found);
  return 0;
}

int host_malloc(void** out, size_t bytes) {
  *out = nullptr;
  if (bytes == 0) return 0;
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return cudaErrorMemoryAllocation;
  add_range({(char*)base, bytes, kPinnedMemory, current_device()});
  *out = base;
  return 0;
}

int host_free(void* address) {
  if (!address) return 0;
  finish_effects();
  Lock lock(mu);
  auto found = ranges().find((char*)address);
  if (found == ranges().end() || found->second.kind != kPinnedMemory) return cudaErrorInvalidValue;
  munmap(address, found->second.size);
  ranges().erase(found);
  return 0;
}

int host_register(void* address, size_t bytes) {
  if (!address || !bytes) return cudaErrorInvalidValue;
  Lock lock(mu);
  Range existing;
  if (find_range(address, &existing)) return cudaErrorHostMemoryAlreadyRegistered;
  add_range({(char*)address, bytes, kPinnedMemory, current_device()});
  return 0;
}

int host_unregister(void* address) {
  finish_effects();
  Lock lock(mu);
  auto found = ranges().find((char*)address);
  if (found == ranges().end() || found->second.kind != kPinnedMemory) return cudaErrorHostMemoryNotRegistered;
  ranges().erase(found);
  return 0;
}

bool find_range(const void* address, Range* out) {
  Lock lock(mu);
  auto after = ranges().upper_bound((char*)address);
  if (after == ranges().begin()) return false;
  const Range& range = (--after)->second;
  if ((char*)address >= range.base + range.size) return false;
  *out = range;
  return true;
}

uint64_t used_bytes(int device) {
  return allocated[device] + (has_context(device) ? context_bytes() : 0);
}

uint64_t free_bytes(int device) {
  uint64_t used = used_bytes(device) + other_processes_bytes(visible_to_physical(device));
  return total_bytes() - std::min(total_bytes(), used);
}

}  // namespace sim
