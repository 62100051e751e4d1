// The driver API.
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include "cost_model.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"
using namespace sim;
#define D(...) EXPORT CUresult CUDAAPI __VA_ARGS__
#define OK CUDA_SUCCESS
#undef cuDeviceGetUuid
#undef cuGetProcAddress
D(cuInit(unsigned)) {
  return (CUresult)init_driver();
}
D(cuDriverGetVersion(int* v)) {
  *v = 13020;
  return OK;
}
D(cuDeviceGetCount(int* n)) {
  if (int e = init_driver()) return (CUresult)e;
  *n = device_count();
  return OK;
}
D(cuDeviceGet(CUdevice* d, int i)) {
  if (i < 0 || i >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  *d = i;
  return OK;
}
D(cuDeviceGetName(char* s, int n, CUdevice)) {
  snprintf(s, n, "%s", model().name);
  return OK;
}
D(cuDeviceTotalMem_v2(size_t* n, CUdevice)) {
  *n = total_bytes();
  return OK;
}
D(cuDeviceGetUuid_v2(CUuuid* u, CUdevice d)) {
  uuid_of(visible_to_physical(d), (unsigned char*)u->bytes);
  return OK;
}
D(cuDeviceGetUuid(CUuuid* u, CUdevice d)) {
  return cuDeviceGetUuid_v2(u, d);
}
D(cuDeviceGetAttribute(int* v, CUdevice_attribute a, CUdevice)) {
  *v = device_attribute((int)a);
  return OK;
}
D(cuDeviceGetPCIBusId(char* s, int n, CUdevice d)) {
  snprintf(s, n, "0000:%02X:00.0", 0x18 + visible_to_physical(d));
  return OK;
}
#define CTX(d) ((CUcontext)(uintptr_t)(0x1000 + (d)))
static thread_local CUcontext current_ctx = nullptr;
D(cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice d)) {
  int old = current_device();
  current_device() = d;
  int e = init_context();
  current_device() = old;
  *c = CTX(d);
  return (CUresult)e;
}
D(cuDevicePrimaryCtxRelease_v2(CUdevice)) {
  return OK;
}
D(cuDevicePrimaryCtxGetState(CUdevice d, unsigned* f, int* active)) {
  if (f) *f = 0;
  *active = used_bytes(d) > 0;
  return OK;
}
D(cuCtxGetCurrent(CUcontext* c)) {
  *c = driver_ready() && used_bytes(current_device()) ? CTX(current_device()) : current_ctx;
  return OK;
}
D(cuCtxSetCurrent(CUcontext c)) {
  current_ctx = c;
  if (c) current_device() = (int)((uintptr_t)c - 0x1000);
  return OK;
}
D(cuCtxPushCurrent_v2(CUcontext c)) {
  return cuCtxSetCurrent(c);
}
D(cuCtxPopCurrent_v2(CUcontext* c)) {
  if (c) *c = current_ctx;
  return OK;
}
D(cuCtxGetDevice(CUdevice* d)) {
  *d = current_device();
  return OK;
}
D(cuCtxSynchronize()) {
  wait_until(device_idle_at(current_device()));
  return OK;
}
D(cuGetErrorString(CUresult e, const char** s)) {
  *s = cudaGetErrorString((cudaError_t)e);
  return OK;
}
D(cuGetErrorName(CUresult e, const char** s)) {
  *s = cudaGetErrorName((cudaError_t)e);
  return OK;
}
D(cuMemAlloc_v2(CUdeviceptr* p, size_t n)) {
  return (CUresult)dev_malloc((void**)p, n);
}
D(cuMemFree_v2(CUdeviceptr p)) {
  return (CUresult)dev_free((void*)p);
}
D(cuMemGetInfo_v2(size_t* f, size_t* t)) {
  return (CUresult)cudaMemGetInfo(f, t);
}
D(cuMemGetAddressRange_v2(CUdeviceptr* b, size_t* n, CUdeviceptr p)) {
  Range r;
  if (!find_range((void*)p, &r)) return CUDA_ERROR_INVALID_VALUE;
  if (b) *b = (CUdeviceptr)r.base;
  if (n) *n = r.size;
  return OK;
}
D(cuPointerGetAttribute(void* data, CUpointer_attribute a, CUdeviceptr p)) {
  Range r;
  if (!find_range((void*)p, &r)) return CUDA_ERROR_INVALID_VALUE;
  switch (a) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *(CUdeviceptr*)data = p;
      return OK;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned*)data = r.kind == 1 ? 1 : 2;
      return OK;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *(CUcontext*)data = CTX(r.device);
      return OK;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *(int*)data = r.device;
      return OK;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *(unsigned long long*)data = (uintptr_t)r.base >> 21;
      return OK;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *(void**)data = r.base;
      return OK;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *(size_t*)data = r.size;
      return OK;
    default:
      *(int*)data = 0;
      return OK;
  }
}
// modules: the kernels of a cubin are known by the name that they are asked for
struct Fn {
  const char* name;
};
struct Mod {
  std::map<std::string, Fn*> f;
};
D(cuModuleLoadData(CUmodule* m, const void*)) {
  DRIVER_CALL(cuModuleLoadData);
  if (int e = init_context()) return (CUresult)e;
  *m = (CUmodule) new Mod;
  return OK;
}
D(cuModuleLoadDataEx(CUmodule* m, const void* p, unsigned, CUjit_option*, void**)) {
  return cuModuleLoadData(m, p);
}
D(cuModuleLoad(CUmodule* m, const char*)) {
  return cuModuleLoadData(m, nullptr);
}
D(cuModuleUnload(CUmodule)) {
  return OK;
}
D(cuModuleGetFunction(CUfunction* f, CUmodule m, const char* n)) {
  *f = (CUfunction) new Fn{intern(n)};
  return OK;
}
D(cuModuleGetGlobal_v2(CUdeviceptr* p, size_t* n, CUmodule, const char*)) {
  dev_malloc((void**)p, 65536);
  if (n) *n = 65536;
  return OK;
}
D(cuLibraryLoadData(CUlibrary* l, const void* p, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                    unsigned)) {
  return cuModuleLoadData((CUmodule*)l, p);
}
D(cuLibraryGetKernel(CUkernel* k, CUlibrary, const char* n)) {
  *k = (CUkernel) new Fn{intern(n)};
  return OK;
}
D(cuKernelGetFunction(CUfunction* f, CUkernel k)) {
  *f = (CUfunction)k;
  return OK;
}
D(cuLibraryUnload(CUlibrary)) {
  return OK;
}
D(cuFuncGetAttribute(int* v, CUfunction_attribute a, CUfunction)) {
  *v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
       : a == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 32
       : a == CU_FUNC_ATTRIBUTE_BINARY_VERSION      ? model().major * 10
                                                    : 0;
  return OK;
}
D(cuFuncSetAttribute(CUfunction, CUfunction_attribute, int)) {
  return OK;
}
D(cuFuncSetCacheConfig(CUfunction, CUfunc_cache)) {
  return OK;
}
D(cuKernelGetAttribute(int* v, CUfunction_attribute a, CUkernel, CUdevice)) {
  return cuFuncGetAttribute(v, a, nullptr);
}
D(cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice)) {
  return OK;
}
D(cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, CUfunction f, int b, size_t s)) {
  return (CUresult)cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f, b, s);
}
D(cuOccupancyMaxActiveClusters(int* n, CUfunction, const CUlaunchConfig*)) {
  *n = 66;
  return OK;
}
static CUresult go(CUfunction f, dim3 g, dim3 b, unsigned sm, CUstream s, void** args, uint32_t corr) {
  if (int e = init_context()) return (CUresult)e;
  Op op;
  op.name = ((Fn*)f)->name;
  op.grid = g;
  op.block = b;
  op.dynamic_shared = sm;
  op.duration_ns = kernel_ns(op.name, g, b, nullptr);
  enqueue(stream_of(s), op, corr);
  return OK;
}
D(cuLaunchKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned h,
                 unsigned sm, CUstream s, void** args, void**)) {
  DRIVER_CALL(cuLaunchKernel);
  return go(f, dim3(a, b, c), dim3(d, e, h), sm, s, args, api.correlation);
}
D(cuLaunchCooperativeKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e,
                            unsigned h, unsigned sm, CUstream s, void** args)) {
  DRIVER_CALL(cuLaunchCooperativeKernel);
  return go(f, dim3(a, b, c), dim3(d, e, h), sm, s, args, api.correlation);
}
D(cuLaunchKernelEx(const CUlaunchConfig* k, CUfunction f, void** args, void**)) {
  DRIVER_CALL(cuLaunchKernelEx);
  return go(f, dim3(k->gridDimX, k->gridDimY, k->gridDimZ), dim3(k->blockDimX, k->blockDimY, k->blockDimZ),
            k->sharedMemBytes, k->hStream, args, api.correlation);
}
D(cuStreamSynchronize(CUstream s)) {
  DRIVER_CALL(cuStreamSynchronize);
  wait_until(stream_of(s)->idle_at);
  return OK;
}
D(cuStreamGetCtx(CUstream, CUcontext* c)) {
  *c = CTX(current_device());
  return OK;
}
D(cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus* v)) {
  return (CUresult)cudaStreamIsCapturing(s, (cudaStreamCaptureStatus*)v);
}
D(cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream s)) {
  return (CUresult)cudaMemsetAsync((void*)p, v, n, s);
}
D(cuMemsetD32Async(CUdeviceptr p, unsigned v, size_t n, CUstream s)) {
  return (CUresult)cudaMemsetAsync((void*)p, v, n * 4, s);
}
D(cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st)) {
  return (CUresult)cudaMemcpyAsync((void*)d, (void*)s, n, cudaMemcpyDefault, st);
}
D(cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void* s, size_t n, CUstream st)) {
  return (CUresult)cudaMemcpyAsync((void*)d, s, n, cudaMemcpyDefault, st);
}
D(cuMemcpyDtoHAsync_v2(void* d, CUdeviceptr s, size_t n, CUstream st)) {
  return (CUresult)cudaMemcpyAsync(d, (void*)s, n, cudaMemcpyDefault, st);
}
D(cuTensorMapEncodeTiled(CUtensorMap* m, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                         const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                         CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill)) {
  memset(m, 0, sizeof *m);
  return OK;
}
// occupancy for the product's own driver checks
EXPORT int simgpu_unsupported() {
  return 801;
}
static void* find(const char* name) {
  char b[128];
  for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
    snprintf(b, sizeof b, "%s%s", name, suffix);
    if (void* p = dlsym(RTLD_DEFAULT, b)) return p;
  }
  log("driver entry point %s is not simulated", name);
  return (void*)simgpu_unsupported;
}
D(cuGetProcAddress_v2(const char* n, void** f, int, cuuint64_t, CUdriverProcAddressQueryResult* q)) {
  *f = find(n);
  if (q) *q = CU_GET_PROC_ADDRESS_SUCCESS;
  return OK;
}
#undef cuGetProcAddress
D(cuGetProcAddress(const char* n, void** f, int, cuuint64_t)) {
  *f = find(n);
  return OK;
}
EXPORT cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char* n, void** f, unsigned,
                                                              unsigned long long,
                                                              cudaDriverEntryPointQueryResult* q) {
  *f = find(n);
  if (q) *q = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
EXPORT cudaError_t CUDARTAPI cudaGetDriverEntryPoint(const char* n, void** f, unsigned long long,
                                                     cudaDriverEntryPointQueryResult* q) {
  *f = find(n);
  if (q) *q = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
// virtual memory (expandable segments)
struct Handle {
  size_t size;
  int device;
};
D(cuMemGetAllocationGranularity(size_t* g, const CUmemAllocationProp*, CUmemAllocationGranularity_flags)) {
  *g = 2 << 20;
  return OK;
}
