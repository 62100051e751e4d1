// The CUDA runtime: devices and versions.
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "capture.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "process.h"
#include "version.h"

using namespace sim;

#define NEED_DRIVER()                                    \
  do {                                                   \
    if (int error_ = init_driver()) return fail(error_); \
  } while (0)

static bool peer_enabled[kMaxDevices][kMaxDevices];

static bool is_device(int device) {
  return device >= 0 && device < device_count();
}

EXPORT cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  RUNTIME_CALL(cudaGetDeviceCount_v3020);
  *count = 0;
  NEED_DRIVER();
  *count = device_count();
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  RUNTIME_CALL(cudaGetDevice_v3020);
  NEED_DRIVER();
  *device = current_device();
  return cudaSuccess;
}

// Since CUDA 12, cudaSetDevice creates the context.
EXPORT cudaError_t CUDARTAPI cudaSetDevice(int device) {
  RUNTIME_CALL(cudaSetDevice_v3020);
  NEED_DRIVER();
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  current_device() = device;
  NEED_CONTEXT();
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  RUNTIME_CALL(cudaGetDeviceProperties_v12000);
  NEED_DRIVER();
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  fill_properties(properties, device);
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  RUNTIME_CALL(cudaDeviceGetAttribute_v5000);
  NEED_DRIVER();
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  *value = device_attribute((int)attribute, device);
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char* id, int size, int device) {
  NEED_DRIVER();
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  snprintf(id, size, "0000:%02X:00.0", 0x18 + visible_to_physical(device));
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  NEED_DRIVER();
  if (!is_device(device) || !is_device(peer)) return fail(cudaErrorInvalidDevice);
  // GeForce GPUs and MIG instances do not support peer-to-peer access.
  *can = device != peer && !mig_mode() && !strstr(model().name, "GeForce");
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peer, unsigned) {
  NEED_CONTEXT();
  int can;
  if (cudaError_t error = cudaDeviceCanAccessPeer(&can, current_device(), peer)) return error;
  if (!can) return fail(cudaErrorPeerAccessUnsupported);
  bool& enabled = peer_enabled[current_device()][peer];
  if (enabled) return fail(cudaErrorPeerAccessAlreadyEnabled);
  enabled = true;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  RUNTIME_CALL(cudaDeviceGetStreamPriorityRange_v5050);
  NEED_CONTEXT();
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaDeviceSynchronize() {
  RUNTIME_CALL(cudaDeviceSynchronize_v3020);
  NEED_CONTEXT();
  if (reject_device_synchronization(current_device())) return fail(cudaErrorStreamCaptureUnsupported);
  uint64_t start = now();
  wait_for(device_idle(current_device()));
  record_sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, api.correlation,
              CUPTI_SYNCHRONIZATION_INVALID_VALUE, 0, start, now());
  return fail(sticky_error());
}

EXPORT cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaProfilerStart() {
  return cudaSuccess;
}
EXPORT cudaError_t CUDARTAPI cudaProfilerStop() {
  return cudaSuccess;
}
