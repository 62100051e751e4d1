// The driver API: devices, contexts, and lookup of driver functions.
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"
#include "version.h"

using namespace sim;

static bool is_device(CUdevice device) {
  return device >= 0 && device < device_count();
}

// Every context is a device's primary context. The handle encodes the device.
static CUcontext context_of(int device) {
  return (CUcontext)(uintptr_t)(0x1000 + device);
}
static int device_of(CUcontext context) {
  return (int)((uintptr_t)context - 0x1000);
}
static thread_local CUcontext thread_context = nullptr;

EXPORT CUresult CUDAAPI cuInit(unsigned) {
  return (CUresult)init_driver();
}

EXPORT CUresult CUDAAPI cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceGetCount(int* count) {
  if (int error = init_driver()) return (CUresult)error;
  *count = device_count();
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceGet(CUdevice* device, int index) {
  if (!is_device(index)) return CUDA_ERROR_INVALID_DEVICE;
  *device = index;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceGetName(char* name, int size, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, size, "%s", model().name);
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = total_bytes();
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  device_uuid(device, (unsigned char*)uuid->bytes);
  return CUDA_SUCCESS;
}

#undef cuDeviceGetUuid
EXPORT CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}

EXPORT CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *value = device_attribute((int)attribute, device);
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceGetPCIBusId(char* id, int size, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(id, size, "0000:%02X:00.0", 0x18 + visible_to_physical(device));
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return (CUresult)cudaDeviceCanAccessPeer(can, device, peer);
}

// --- contexts ---

EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  int before = current_device();
  current_device() = device;
  int error = init_context();
  current_device() = before;
  *context = context_of(device);
  return (CUresult)error;
}

EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return CUDA_SUCCESS;
}
EXPORT CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned) {
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (flags) *flags = 0;
  *active = has_context(device);
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  *context = driver_ready() && has_context(current_device()) ? context_of(current_device()) : thread_context;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  thread_context = context;
  if (context) current_device() = device_of(context);
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context) {
  return cuCtxSetCurrent(context);
}

EXPORT CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* context) {
  if (context) *context = thread_context;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  if (int error = init_driver()) return (CUresult)error;
  *device = current_device();
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxGetFlags(unsigned* flags) {
  *flags = 0;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxSetFlags(unsigned) {
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return (CUresult)cudaDeviceGetStreamPriorityRange(least, greatest);
}

EXPORT CUresult CUDAAPI cuCtxSynchronize() {
  DRIVER_CALL(cuCtxSynchronize);
  return (CUresult)cudaDeviceSynchronize();
}

// --- function lookup ---

EXPORT int simgpu_unsupported() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

// Looks up the newest version of the function, because programs pass names without a version suffix.
static void* find_function(const char* name) {
  for (const char* suffix : {"_v4", "_v3", "_v2", ""})
    if (void* found = dlsym(RTLD_DEFAULT, (std::string(name) + suffix).c_str())) return found;
  log("driver function %s is unknown", name);
  return (void*)simgpu_unsupported;
}

EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t,
                                            CUdriverProcAddressQueryResult* result) {
  *function = find_function(name);
  if (result) *result = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}

#undef cuGetProcAddress
EXPORT CUresult CUDAAPI cuGetProcAddress(const char* name, void** function, int, cuuint64_t) {
  *function = find_function(name);
  return CUDA_SUCCESS;
}

EXPORT cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                              unsigned long long,
                                                              cudaDriverEntryPointQueryResult* result) {
  *function = find_function(name);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                                     cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(name, function, 0, 0, result);
}
