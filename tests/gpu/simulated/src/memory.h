// Device memory, pinned host memory, and which address belongs to what.
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

// On the current device. Return CUDA error codes.
int dev_malloc(void** out, size_t bytes, RangeKind kind = kDeviceMemory);
int dev_free(void* address);
int host_malloc(void** out, size_t bytes);
int host_free(void* address);
int host_register(void* address, size_t bytes);
int host_unregister(void* address);

// Charges the device with memory that is allocated in another way (virtual memory management), or gives it
// back.
bool charge(int device, int64_t bytes);
void add_range(const Range& range);
void remove_range(void* base);
// Anonymous memory, aligned to what the driver aligns to; null where there is none left.
void* reserve_pages(size_t bytes, bool accessible);
constexpr size_t kGranularity = 2u << 20;

uint64_t used_bytes(int device);  // by this process, its context included
uint64_t free_bytes(int device);  // what other processes of the simulated machine leave, too

}  // namespace sim
