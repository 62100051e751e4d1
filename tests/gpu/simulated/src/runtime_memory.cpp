// The CUDA runtime: allocation, copies, memory pools.
#include <cuda_runtime_api.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <set>

#include "capture.h"
#include "copies.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"

using namespace sim;

namespace sim {

// Approximate host time of these calls on a current server: the driver maps or pins pages.
constexpr uint64_t kDeviceAllocationNs = 90'000;
constexpr uint64_t kHostAllocationNs = 60'000;
constexpr double kPinnedBytesPerNs = 10;
constexpr uint64_t kCopyHostNs = 3'500;

static int kind_of(const void* address, int* device) {
  Range range;
  if (!find_range(address, &range)) return CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  *device = range.device;
  switch (range.kind) {
    case kPinnedMemory:
      return CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    case kManagedMemory:
      return CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
    default:
      return CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  }
}

static void fill(void* target, int value, size_t bytes) {
  if (value != 0 || bytes < (1 << 16)) {
    memset(target, value, bytes);
    return;
  }
  // Returns whole pages to the operating system instead of writing zeros.
  auto* first = (char*)(((uintptr_t)target + 4095) & ~4095ull);
  auto* last = (char*)(((uintptr_t)target + bytes) & ~4095ull);
  memset(target, 0, first - (char*)target);
  madvise(first, last - first, MADV_DONTNEED);
  memset(last, 0, (char*)target + bytes - last);
}

int copy_memory(void* target, const void* source, size_t bytes, Stream* stream, bool asynchronous,
                uint64_t entered, uint32_t correlation) {
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!asynchronous && prohibited_by_capture()) return cudaErrorStreamCaptureUnsupported;
  if (bytes == 0) return 0;
  int source_device = stream->device, target_device = stream->device;
  int source_kind = kind_of(source, &source_device), target_kind = kind_of(target, &target_device);
  auto on_device = [](int kind) {
    return kind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE || kind == CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
  };
  bool from_device = on_device(source_kind), to_device = on_device(target_kind);
  bool pageable = source_kind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE ||
                  target_kind == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  bool between_devices = from_device && to_device && source_device != target_device;

  Op op;
  op.kind = Op::MEMCPY;
  op.bytes = bytes;
  op.source_kind = source_kind;
  op.target_kind = target_kind;
  double rate;
  if (between_devices) {
    op.copy_kind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
    rate = model().peer_bandwidth;
  } else if (from_device && to_device) {
    op.copy_kind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    rate = model().bandwidth * 0.4;  // each byte is read and written, at 80% of the peak
  } else {
    op.copy_kind = from_device ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                   : to_device ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                               : CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
    rate = pageable ? model().pcie_pageable : model().pcie_pinned;
  }
  op.duration_ns = 900 + (uint64_t)(1e9 * bytes / rate);
  // Kernels compute nothing, so a large device-to-device copy would only waste time on this machine.
  bool worth_copying = !(from_device && to_device) || bytes <= (1 << 18);
  if (worth_copying) op.effect = [=] { memmove(target, source, bytes); };
  op.large_effect = asynchronous && !pageable && bytes > (1 << 18);

  if (stream->capture) {
    // An asynchronous copy of pageable memory cannot be captured: a replay would read the staging buffer's
    // contents from capture time.
    if (pageable) {
      Lock lock(mu);
      invalidate(*stream->capture);
      return cudaErrorStreamCaptureUnsupported;
    }
    return enqueue(stream, std::move(op), correlation);
  }
  spin_until(entered + kCopyHostNs);
  if (int error = enqueue(stream, std::move(op), correlation)) return error;
  // CUDA Runtime API, "API synchronization behavior": pageable memory is staged, and the call returns once
  // the host can reuse the memory. This applies to host-to-device copies above 64 KiB and to all
  // device-to-host copies. A synchronous device-to-device copy does not wait.
  bool staged = pageable && (to_device ? bytes > 65536 : true);
  bool waits = !asynchronous && !(from_device && to_device);
  if (staged || waits) {
    FutureTimePtr end;
    {
      Lock lock(mu);
      end = stream->tail;
    }
    wait_for(end);
    return sticky_error();
  }
  return 0;
}

int set_memory(void* target, int value, size_t bytes, Stream* stream, uint64_t entered,
               uint32_t correlation) {
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!bytes) return 0;
  int device = stream->device;
  Op op;
  op.kind = Op::MEMSET;
  op.bytes = bytes;
  op.value = value;
  op.target_kind = kind_of(target, &device);
  op.duration_ns = 800 + (uint64_t)(1e9 * bytes / (model().bandwidth * 0.8));
  op.effect = [=] { fill(target, value, bytes); };
  if (!stream->capture) spin_until(entered + launch_host_ns());
  return enqueue(stream, std::move(op), correlation);
}

}  // namespace sim

// --- allocation ---

static cudaError_t allocate(void** out, size_t bytes, RangeKind kind, uint64_t entered) {
  if (prohibited_by_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  int error = dev_malloc(out, bytes, kind);
  wait_until(entered + kDeviceAllocationNs);
  return fail(error);
}

EXPORT cudaError_t CUDARTAPI cudaMalloc(void** out, size_t bytes) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaMalloc_v3020);
  NEED_CONTEXT();
  return allocate(out, bytes, kDeviceMemory, entered);
}

EXPORT cudaError_t CUDARTAPI cudaMallocManaged(void** out, size_t bytes, unsigned) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaMallocManaged_v6000);
  NEED_CONTEXT();
  return allocate(out, bytes, kManagedMemory, entered);
}

// cudaFree synchronizes the device.
EXPORT cudaError_t CUDARTAPI cudaFree(void* address) {
  RUNTIME_CALL(cudaFree_v3020);
  NEED_CONTEXT();
  if (!address) return cudaSuccess;
  if (prohibited_by_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  wait_for(device_idle(current_device()));
  if (int error = sticky_error()) return fail(error);
  return fail(dev_free(address));
}

static cudaError_t allocate_host(void** out, size_t bytes, uint64_t entered) {
  if (prohibited_by_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  int error = host_malloc(out, bytes);
  wait_until(entered + kHostAllocationNs + (uint64_t)(bytes / kPinnedBytesPerNs));
  return fail(error);
}

EXPORT cudaError_t CUDARTAPI cudaHostAlloc(void** out, size_t bytes, unsigned) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaHostAlloc_v3020);
  NEED_CONTEXT();
  return allocate_host(out, bytes, entered);
}

EXPORT cudaError_t CUDARTAPI cudaMallocHost(void** out, size_t bytes) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaMallocHost_v3020);
  NEED_CONTEXT();
  return allocate_host(out, bytes, entered);
}

EXPORT cudaError_t CUDARTAPI cudaFreeHost(void* address) {
  RUNTIME_CALL(cudaFreeHost_v3020);
  NEED_CONTEXT();
  if (prohibited_by_capture()) return fail(cudaErrorStreamCaptureUnsupported);
  return fail(host_free(address));
}

EXPORT cudaError_t CUDARTAPI cudaHostRegister(void* address, size_t bytes, unsigned) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaHostRegister_v4000);
  NEED_CONTEXT();
  int error = host_register(address, bytes);
  wait_until(entered + kHostAllocationNs + (uint64_t)(bytes / kPinnedBytesPerNs));
  return fail(error);
}

EXPORT cudaError_t CUDARTAPI cudaHostUnregister(void* address) {
  RUNTIME_CALL(cudaHostUnregister_v4000);
  return fail(host_unregister(address));
}

EXPORT cudaError_t CUDARTAPI cudaHostGetDevicePointer(void** out, void* address, unsigned) {
  Range range;
  if (!find_range(address, &range)) return fail(cudaErrorInvalidValue);
  *out = address;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaMemGetInfo(size_t* free, size_t* total) {
  RUNTIME_CALL(cudaMemGetInfo_v3020);
  NEED_CONTEXT();
  *total = total_bytes();
  *free = free_bytes(current_device());
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                                      const void* address) {
  RUNTIME_CALL(cudaPointerGetAttributes_v4000);
  memset(attributes, 0, sizeof *attributes);
  attributes->device = -1;
  // Works without a context, but not in a forked child.
  if (init_driver() == cudaErrorInitializationError) return fail(cudaErrorInitializationError);
  Range range;
  if (!find_range(address, &range)) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;
    attributes->hostPointer = (void*)address;
    return cudaSuccess;
  }
  attributes->type = range.kind == kPinnedMemory    ? cudaMemoryTypeHost
                     : range.kind == kManagedMemory ? cudaMemoryTypeManaged
                                                    : cudaMemoryTypeDevice;
  attributes->device = range.device;
  attributes->devicePointer = (void*)address;
  attributes->hostPointer = range.kind == kDeviceMemory ? nullptr : (void*)address;
  return cudaSuccess;
}

// --- copies ---

EXPORT cudaError_t CUDARTAPI cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaMemcpy_v3020);
  NEED_CONTEXT();
  return fail(copy_memory(target, source, bytes, stream_of(nullptr), false, entered, api.correlation));
}

EXPORT cudaError_t CUDARTAPI cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind,
                                             cudaStream_t stream) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaMemcpyAsync_v3020);
  NEED_CONTEXT();
  return fail(copy_memory(target, source, bytes, stream_of(stream), true, entered, api.correlation));
}

EXPORT cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void* target, int, const void* source, int, size_t bytes,
                                                 cudaStream_t stream) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaMemcpyPeerAsync_v4000);
  NEED_CONTEXT();
  return fail(copy_memory(target, source, bytes, stream_of(stream), true, entered, api.correlation));
}

EXPORT cudaError_t CUDARTAPI cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source,
                                               size_t source_pitch, size_t width, size_t height,
                                               cudaMemcpyKind, cudaStream_t stream) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaMemcpy2DAsync_v3020);
  NEED_CONTEXT();
  if (!width || !height) return cudaSuccess;
  // Only the last row is enqueued, with the time of all rows. The other rows are copied here.
  for (size_t row = 0; row + 1 < height; row++)
    memmove((char*)target + row * target_pitch, (const char*)source + row * source_pitch, width);
  return fail(copy_memory((char*)target + (height - 1) * target_pitch,
                          (const char*)source + (height - 1) * source_pitch, width, stream_of(stream), true,
                          entered, api.correlation));
}

EXPORT cudaError_t CUDARTAPI cudaMemset(void* target, int value, size_t bytes) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaMemset_v3020);
  NEED_CONTEXT();
  return fail(set_memory(target, value, bytes, stream_of(nullptr), entered, api.correlation));
}

EXPORT cudaError_t CUDARTAPI cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaMemsetAsync_v3020);
  NEED_CONTEXT();
  return fail(set_memory(target, value, bytes, stream_of(stream), entered, api.correlation));
}

// --- memory pools: cudaMallocAsync ---

namespace {

// Each device has one pool. Freed memory stays in the pool up to the release threshold.
struct Pool {
  std::map<void*, size_t> in_use;
  std::multimap<size_t, void*> cached;
  uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0, release_threshold = 0;

  void trim(uint64_t keep) {
    for (auto it = cached.begin(); it != cached.end() && reserved > keep;) {
      dev_free(it->second);
      reserved -= it->first;
      it = cached.erase(it);
    }
  }

  int allocate(void** out, size_t bytes) {
    size_t size = (bytes + kGranularity - 1) / kGranularity * kGranularity;
    auto fit = cached.lower_bound(size);
    if (fit != cached.end() && fit->first <= size + size / 4) {
      size = fit->first;
      *out = fit->second;
      cached.erase(fit);
    } else {
      int error = dev_malloc(out, size);
      if (error) {
        trim(0);
        error = dev_malloc(out, size);
      }
      if (error) return error;
      reserved += size;
    }
    in_use[*out] = size;
    used += size;
    used_high = std::max(used_high, used);
    reserved_high = std::max(reserved_high, reserved);
    return 0;
  }

  bool free(void* address) {
    auto found = in_use.find(address);
    if (found == in_use.end()) return false;
    used -= found->second;
    cached.insert({found->second, address});
    in_use.erase(found);
    trim(std::max(release_threshold, used));
    return true;
  }
};

Pool pools[kMaxDevices];

}  // namespace

EXPORT cudaError_t CUDARTAPI cudaMallocAsync(void** out, size_t bytes, cudaStream_t handle) {
  RUNTIME_CALL(cudaMallocAsync_v11020);
  NEED_CONTEXT();
  Lock lock(mu);
  if (!stream_of(handle)) return fail(cudaErrorInvalidResourceHandle);
  *out = nullptr;
  return bytes ? fail(pools[current_device()].allocate(out, bytes)) : cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaFreeAsync(void* address, cudaStream_t handle) {
  RUNTIME_CALL(cudaFreeAsync_v11020);
  NEED_CONTEXT();
  Lock lock(mu);
  if (!stream_of(handle)) return fail(cudaErrorInvalidResourceHandle);
  for (Pool& pool : pools)
    if (pool.free(address)) return cudaSuccess;
  return fail(dev_free(address));
}

static Pool* pool_of(cudaMemPool_t handle) {
  for (Pool& pool : pools)
    if ((cudaMemPool_t)&pool == handle) return &pool;
  return nullptr;
}

EXPORT cudaError_t CUDARTAPI cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
  *pool = (cudaMemPool_t)&pools[device];
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute,
                                                     void* value) {
  Lock lock(mu);
  Pool* pool = pool_of(handle);
  if (!pool) return fail(cudaErrorInvalidValue);
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      *(uint64_t*)value = pool->release_threshold;
      break;
    case cudaMemPoolAttrReservedMemCurrent:
      *(uint64_t*)value = pool->reserved;
      break;
    case cudaMemPoolAttrReservedMemHigh:
      *(uint64_t*)value = pool->reserved_high;
      break;
    case cudaMemPoolAttrUsedMemCurrent:
      *(uint64_t*)value = pool->used;
      break;
    case cudaMemPoolAttrUsedMemHigh:
      *(uint64_t*)value = pool->used_high;
      break;
    default:
      *(int*)value = 1;  // the reuse policies are enabled
  }
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute,
                                                     void* value) {
  Lock lock(mu);
  Pool* pool = pool_of(handle);
  if (!pool) return fail(cudaErrorInvalidValue);
  if (attribute == cudaMemPoolAttrReleaseThreshold) pool->release_threshold = *(uint64_t*)value;
  // These two attributes accept only 0, which resets them.
  if (attribute == cudaMemPoolAttrReservedMemHigh) pool->reserved_high = pool->reserved;
  if (attribute == cudaMemPoolAttrUsedMemHigh) pool->used_high = pool->used;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaMemPoolTrimTo(cudaMemPool_t handle, size_t keep) {
  Lock lock(mu);
  Pool* pool = pool_of(handle);
  if (!pool) return fail(cudaErrorInvalidValue);
  pool->trim(keep);
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* value) {
  *(uint64_t*)value = 0;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) {
  return cudaSuccess;
}
