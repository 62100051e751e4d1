// Device memory, pinned host memory, and lookup of the allocation that contains an address.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace sim {

enum RangeKind { kPinnedMemory = 1, kDeviceMemory = 2, kManagedMemory = 3 };

struct Range {
  char* base;
  size_t size;
  int kind;  // RangeKind
  int device;
};

bool find_range(const void* address, Range* out);

// Allocates on the current device. Returns a CUDA error code.
int dev_malloc(void** out, size_t bytes, RangeKind kind = kDeviceMemory);
int dev_free(void* address);
int host_malloc(void** out, size_t bytes);
int host_free(void* address);
int host_register(void* address, size_t bytes);
int host_unregister(void* address);

// Charges memory allocated by other means (virtual memory management) to the device, or returns it if `bytes`
// is negative.
bool charge(int device, int64_t bytes);
void add_range(const Range& range);
void remove_range(void* base);
// Anonymous memory with the driver's alignment; null if none is left.
void* reserve_pages(size_t bytes, bool accessible);
constexpr size_t kGranularity = 2u << 20;

uint64_t used_bytes(int device);  // used by this process, including its context
uint64_t free_bytes(int device);  // free after the usage of all processes of the simulated machine

}  // namespace sim
