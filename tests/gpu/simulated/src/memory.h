// Device memory, pinned host memory, and which address belongs to what.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace sim {

struct Range {
  char* base;
  size_t size;
  int kind;  // 1 pinned host memory, 2 device memory
  int device;
};

bool find_range(const void* address, Range* out);
int dev_malloc(void** out, size_t bytes);
int dev_free(void* address);
uint64_t used_bytes(int device);

}  // namespace sim
