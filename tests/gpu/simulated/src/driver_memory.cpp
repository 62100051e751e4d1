// The driver API: memory, virtual memory management (expandable segments), copies.
#include <cuda.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <set>

#include "copies.h"
#include "cupti.h"
#include "errors.h"
#include "export.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"

using namespace sim;

#define NEED_DRIVER_CONTEXT()                                 \
  do {                                                        \
    if (int error_ = init_context()) return (CUresult)error_; \
  } while (0)

EXPORT CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  DRIVER_CALL(cuMemAlloc_v2);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return (CUresult)cudaMalloc((void**)out, bytes);
}

EXPORT CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  DRIVER_CALL(cuMemAllocManaged);
  return (CUresult)cudaMallocManaged((void**)out, bytes, flags);
}

EXPORT CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
  DRIVER_CALL(cuMemFree_v2);
  return (CUresult)cudaFree((void*)address);
}

EXPORT CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  DRIVER_CALL(cuMemAllocAsync);
  return (CUresult)cudaMallocAsync((void**)out, bytes, stream);
}

EXPORT CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  DRIVER_CALL(cuMemFreeAsync);
  return (CUresult)cudaFreeAsync((void*)address, stream);
}

EXPORT CUresult CUDAAPI cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  DRIVER_CALL(cuMemHostAlloc);
  return (CUresult)cudaHostAlloc(out, bytes, flags);
}

EXPORT CUresult CUDAAPI cuMemAllocHost_v2(void** out, size_t bytes) {
  DRIVER_CALL(cuMemAllocHost_v2);
  return (CUresult)cudaHostAlloc(out, bytes, 0);
}

EXPORT CUresult CUDAAPI cuMemFreeHost(void* address) {
  DRIVER_CALL(cuMemFreeHost);
  return (CUresult)cudaFreeHost(address);
}

EXPORT CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* address, unsigned) {
  *out = (CUdeviceptr)address;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
  DRIVER_CALL(cuMemGetInfo_v2);
  return (CUresult)cudaMemGetInfo(free, total);
}

EXPORT CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  Range range;
  if (!find_range((void*)address, &range)) return CUDA_ERROR_INVALID_VALUE;
  if (base) *base = (CUdeviceptr)range.base;
  if (size) *size = range.size;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  Range range;
  if (!find_range((void*)address, &range)) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *(CUdeviceptr*)out = address;
      break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (range.kind == kDeviceMemory) return CUDA_ERROR_INVALID_VALUE;
      *(void**)out = (void*)address;
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned*)out = range.kind == kPinnedMemory ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *(CUcontext*)out = (CUcontext)(uintptr_t)(0x1000 + range.device);
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *(int*)out = range.device;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *(unsigned long long*)out = (uintptr_t)range.base / kGranularity;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *(void**)out = range.base;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *(size_t*)out = range.size;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *(unsigned*)out = range.kind == kManagedMemory;
      break;
    default:
      *(int*)out = 0;
  }
  return CUDA_SUCCESS;
}

// --- virtual memory management ---

namespace {

// Physical memory counts against the device from its creation until it is neither mapped nor held by a
// handle.
struct PhysicalMemory {
  size_t size;
  int device;
  int references;
};
struct Mapping {
  size_t size;
  PhysicalMemory* memory;
};

std::set<PhysicalMemory*>& physical_memory() {
  static auto* all = new std::set<PhysicalMemory*>;
  return *all;
}
std::map<char*, size_t>& reservations() {
  static auto* all = new std::map<char*, size_t>;
  return *all;
}
std::map<char*, Mapping>& mappings() {
  static auto* all = new std::map<char*, Mapping>;
  return *all;
}

void release(PhysicalMemory* memory) {
  if (--memory->references > 0) return;
  charge(memory->device, -(int64_t)memory->size);
  physical_memory().erase(memory);
  delete memory;
}

bool is_aligned(size_t value) {
  return value % kGranularity == 0;
}

}  // namespace

EXPORT CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*,
                                                      CUmemAllocationGranularity_flags) {
  NEED_DRIVER_CONTEXT();
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t, CUdeviceptr,
                                            unsigned long long) {
  NEED_DRIVER_CONTEXT();
  if (size == 0 || !is_aligned(size)) return CUDA_ERROR_INVALID_VALUE;
  Lock lock(mu);
  void* base = reserve_pages(size, false);
  if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations()[(char*)base] = size;
  *out = (CUdeviceptr)base;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t size) {
  NEED_DRIVER_CONTEXT();
  Lock lock(mu);
  auto found = reservations().find((char*)address);
  if (found == reservations().end() || found->second != size) return CUDA_ERROR_INVALID_VALUE;
  munmap(found->first, size);
  reservations().erase(found);
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                                    const CUmemAllocationProp* properties, unsigned long long) {
  NEED_DRIVER_CONTEXT();
  if (size == 0 || !is_aligned(size)) return CUDA_ERROR_INVALID_VALUE;
  int device = properties->location.id;
  if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  Lock lock(mu);
  if (!charge(device, (int64_t)size)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* memory = new PhysicalMemory{size, device, 1};
  physical_memory().insert(memory);
  *handle = (CUmemGenericAllocationHandle)memory;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  NEED_DRIVER_CONTEXT();
  Lock lock(mu);
  auto* memory = (PhysicalMemory*)handle;
  if (!physical_memory().count(memory)) return CUDA_ERROR_INVALID_VALUE;
  release(memory);
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                                 CUmemGenericAllocationHandle handle, unsigned long long) {
  NEED_DRIVER_CONTEXT();
  Lock lock(mu);
  auto* memory = (PhysicalMemory*)handle;
  char* base = (char*)address;
  auto after = reservations().upper_bound(base);
  if (!physical_memory().count(memory) || offset != 0 || size != memory->size ||
      after == reservations().begin())
    return CUDA_ERROR_INVALID_VALUE;
  auto& [start, length] = *--after;
  Range existing;
  if (base + size > start + length || mappings().count(base) || find_range(base, &existing))
    return CUDA_ERROR_INVALID_VALUE;
  memory->references++;
  mappings()[base] = {size, memory};
  add_range({base, size, kDeviceMemory, memory->device});
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc*, size_t) {
  NEED_DRIVER_CONTEXT();
  return mprotect((void*)address, size, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t size) {
  NEED_DRIVER_CONTEXT();
  finish_effects();
  Lock lock(mu);
  char* base = (char*)address;
  auto first = mappings().lower_bound(base);
  if (first == mappings().end() || first->first != base) return CUDA_ERROR_INVALID_VALUE;
  auto last = first;
  for (; last != mappings().end() && last->first < base + size; ++last) {
    remove_range(last->first);
    release(last->second.memory);
  }
  mappings().erase(first, last);
  madvise(base, size, MADV_DONTNEED);
  mprotect(base, size, PROT_NONE);
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  Lock lock(mu);
  auto after = mappings().upper_bound((char*)address);
  if (after == mappings().begin()) return CUDA_ERROR_INVALID_VALUE;
  const Mapping& mapping = (--after)->second;
  if ((char*)address >= after->first + mapping.size) return CUDA_ERROR_INVALID_VALUE;
  mapping.memory->references++;
  *handle = (CUmemGenericAllocationHandle)mapping.memory;
  return CUDA_SUCCESS;
}

// --- copies ---

// A driver copy, implemented by the copy of the runtime.
#define COPY(function, target, source, bytes, stream, asynchronous)                              \
  uint64_t entered = now();                                                                      \
  DRIVER_CALL(function);                                                                         \
  NEED_DRIVER_CONTEXT();                                                                         \
  return (CUresult)copy_memory((void*)(target), (const void*)(source), bytes, stream_of(stream), \
                               asynchronous, entered, api.correlation)

EXPORT CUresult CUDAAPI cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  COPY(cuMemcpy, target, source, bytes, nullptr, false);
}
EXPORT CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr target, const void* source, size_t bytes) {
  COPY(cuMemcpyHtoD_v2, target, source, bytes, nullptr, false);
}
EXPORT CUresult CUDAAPI cuMemcpyDtoH_v2(void* target, CUdeviceptr source, size_t bytes) {
  COPY(cuMemcpyDtoH_v2, target, source, bytes, nullptr, false);
}
EXPORT CUresult CUDAAPI cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  COPY(cuMemcpyDtoD_v2, target, source, bytes, nullptr, false);
}
EXPORT CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  COPY(cuMemcpyAsync, target, source, bytes, stream, true);
}
EXPORT CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void* source, size_t bytes,
                                             CUstream stream) {
  COPY(cuMemcpyHtoDAsync_v2, target, source, bytes, stream, true);
}
EXPORT CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void* target, CUdeviceptr source, size_t bytes,
                                             CUstream stream) {
  COPY(cuMemcpyDtoHAsync_v2, target, source, bytes, stream, true);
}
EXPORT CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes,
                                             CUstream stream) {
  COPY(cuMemcpyDtoDAsync_v2, target, source, bytes, stream, true);
}

#define FILL(function, target, value, bytes, stream)                                            \
  uint64_t entered = now();                                                                     \
  DRIVER_CALL(function);                                                                        \
  NEED_DRIVER_CONTEXT();                                                                        \
  return (CUresult)set_memory((void*)(target), (int)(value), bytes, stream_of(stream), entered, \
                              api.correlation)

EXPORT CUresult CUDAAPI cuMemsetD8_v2(CUdeviceptr target, unsigned char value, size_t count) {
  FILL(cuMemsetD8_v2, target, value, count, nullptr);
}
EXPORT CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count,
                                        CUstream stream) {
  FILL(cuMemsetD8Async, target, value, count, stream);
}
// Programs only fill with words of one repeated byte (0 or all ones).
EXPORT CUresult CUDAAPI cuMemsetD32_v2(CUdeviceptr target, unsigned value, size_t count) {
  FILL(cuMemsetD32_v2, target, value & 0xff, count * 4, nullptr);
}
EXPORT CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, CUstream stream) {
  FILL(cuMemsetD32Async, target, value & 0xff, count * 4, stream);
}
