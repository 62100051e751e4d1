// The driver API: streams and events, shared with the runtime API.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cupti.h"
#include "export.h"
#include "process.h"
#include "timeline.h"

using namespace sim;

#define AS_RUNTIME(name, call) \
  DRIVER_CALL(name);           \
  return (CUresult)(call)

EXPORT CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned flags) {
  AS_RUNTIME(cuStreamCreate, cudaStreamCreateWithFlags(stream, flags));
}
EXPORT CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  AS_RUNTIME(cuStreamCreateWithPriority, cudaStreamCreateWithPriority(stream, flags, priority));
}
EXPORT CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream) {
  AS_RUNTIME(cuStreamDestroy_v2, cudaStreamDestroy(stream));
}
EXPORT CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
  AS_RUNTIME(cuStreamSynchronize, cudaStreamSynchronize(stream));
}
EXPORT CUresult CUDAAPI cuStreamQuery(CUstream stream) {
  AS_RUNTIME(cuStreamQuery, cudaStreamQuery(stream));
}
EXPORT CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  AS_RUNTIME(cuStreamWaitEvent, cudaStreamWaitEvent(stream, event, flags));
}
EXPORT CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  AS_RUNTIME(cuStreamIsCapturing, cudaStreamIsCapturing(stream, (cudaStreamCaptureStatus*)status));
}

EXPORT CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext* context) {
  Stream* stream = stream_of(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  *context = (CUcontext)(uintptr_t)(0x1000 + stream->device);
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned flags) {
  AS_RUNTIME(cuEventCreate, cudaEventCreateWithFlags(event, flags));
}
EXPORT CUresult CUDAAPI cuEventDestroy_v2(CUevent event) {
  AS_RUNTIME(cuEventDestroy_v2, cudaEventDestroy(event));
}
EXPORT CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  AS_RUNTIME(cuEventRecord, cudaEventRecord(event, stream));
}
EXPORT CUresult CUDAAPI cuEventQuery(CUevent event) {
  AS_RUNTIME(cuEventQuery, cudaEventQuery(event));
}
EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  AS_RUNTIME(cuEventSynchronize, cudaEventSynchronize(event));
}
EXPORT CUresult CUDAAPI cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  AS_RUNTIME(cuEventElapsedTime_v2, cudaEventElapsedTime(milliseconds, start, end));
}
#undef cuEventElapsedTime
EXPORT CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  AS_RUNTIME(cuEventElapsedTime, cudaEventElapsedTime(milliseconds, start, end));
}
