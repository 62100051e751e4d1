// The CUDA runtime: streams, events, host functions.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <unordered_set>

#include "capture.h"
#include "cupti.h"
#include "errors.h"
#include "events.h"
#include "export.h"
#include "process.h"
#include "timeline.h"

using namespace sim;

static std::unordered_set<void*>& live_events() {
  static auto* events = new std::unordered_set<void*>;
  return *events;
}
static uint32_t next_event_id = 1;

Event* sim::event_of(void* handle) {
  Lock lock(mu);
  return live_events().count(handle) ? (Event*)handle : nullptr;
}

#define FIND_STREAM(stream, handle)   \
  Stream* stream = stream_of(handle); \
  if (!stream) return fail(cudaErrorInvalidResourceHandle)
#define FIND_EVENT(event, handle)  \
  Event* event = event_of(handle); \
  if (!event) return fail(cudaErrorInvalidResourceHandle)

// --- streams ---

EXPORT cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags,
                                                          int priority) {
  RUNTIME_CALL(cudaStreamCreateWithPriority_v5050);
  NEED_CONTEXT();
  *handle = (cudaStream_t)create_stream(flags, std::clamp(priority, -5, 0));
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}

EXPORT cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t* handle) {
  return cudaStreamCreateWithPriority(handle, 0, 0);
}

EXPORT cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t handle) {
  RUNTIME_CALL(cudaStreamDestroy_v5050);
  NEED_CONTEXT();
  return destroy_stream(handle) ? cudaSuccess : fail(cudaErrorInvalidResourceHandle);
}

EXPORT cudaError_t CUDARTAPI cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  FIND_STREAM(stream, handle);
  *priority = stream->priority;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  FIND_STREAM(stream, handle);
  *flags = stream->flags;
  return cudaSuccess;
}

// A capturing stream has no execution status. Querying it invalidates the capture.
static int reject_captured(Stream* stream) {
  if (stream->capture) {
    Lock lock(mu);
    invalidate(*stream->capture);
    return cudaErrorStreamCaptureUnsupported;
  }
  if (int error = reject_legacy_use(stream)) return error;
  return prohibited_by_capture() ? cudaErrorStreamCaptureUnsupported : 0;
}

EXPORT cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t handle) {
  RUNTIME_CALL(cudaStreamQuery_v3020);
  NEED_CONTEXT();
  FIND_STREAM(stream, handle);
  if (int error = reject_captured(stream)) return fail(error);
  return reached(stream->tail) ? cudaSuccess : cudaErrorNotReady;
}

EXPORT cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t handle) {
  RUNTIME_CALL(cudaStreamSynchronize_v3020);
  NEED_CONTEXT();
  FIND_STREAM(stream, handle);
  if (int error = reject_captured(stream)) return fail(error);
  uint64_t start = now();
  FutureTimePtr end;
  {
    Lock lock(mu);
    end = stream_ready_time(stream);
  }
  wait_for(end);
  record_sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, api.correlation, stream->id, 0, start,
              now());
  return fail(sticky_error());
}

EXPORT cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  RUNTIME_CALL(cudaStreamWaitEvent_v3020);
  NEED_CONTEXT();
  Lock lock(mu);
  FIND_STREAM(stream, handle);
  FIND_EVENT(event, event_handle);
  if (event->capture) return fail(join_capture(stream, *event));
  if (stream->capture) {
    // A graph cannot depend on an event from outside its capture. An event that was never recorded adds no
    // dependency.
    if (!event->recorded) return cudaSuccess;
    invalidate(*stream->capture);
    return fail(cudaErrorStreamCaptureIsolation);
  }
  if (event->recorded) stream->tail = join({stream->tail, event->at});
  uint64_t time = now();
  record_sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, api.correlation, stream->id, event->id,
              time, time);
  return cudaSuccess;
}

static cudaError_t add_host_function(cudaStream_t handle, std::function<void()> function,
                                     uint32_t correlation) {
  FIND_STREAM(stream, handle);
  Op op;
  op.kind = Op::HOST_FUNCTION;
  op.effect = std::move(function);
  return fail(enqueue(stream, std::move(op), correlation));
}

EXPORT cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  RUNTIME_CALL(cudaLaunchHostFunc_v10000);
  NEED_CONTEXT();
  return add_host_function(stream, [=] { function(data); }, api.correlation);
}

EXPORT cudaError_t CUDARTAPI cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function,
                                                   void* data, unsigned) {
  RUNTIME_CALL(cudaStreamAddCallback_v5000);
  NEED_CONTEXT();
  return add_host_function(stream, [=] { function(stream, cudaSuccess, data); }, api.correlation);
}

// --- events ---

EXPORT cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  RUNTIME_CALL(cudaEventCreateWithFlags_v3020);
  NEED_CONTEXT();
  Lock lock(mu);
  auto* event = new Event{next_event_id++, flags, current_device()};
  live_events().insert(event);
  *handle = (cudaEvent_t)event;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t* handle) {
  return cudaEventCreateWithFlags(handle, 0);
}

EXPORT cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t handle) {
  RUNTIME_CALL(cudaEventDestroy_v3020);
  Lock lock(mu);
  FIND_EVENT(event, handle);
  live_events().erase(event);
  delete event;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle,
                                                      unsigned flags) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaEventRecord_v3020);
  NEED_CONTEXT();
  Lock lock(mu);
  FIND_EVENT(event, handle);
  FIND_STREAM(stream, stream_handle);
  if (event->device != stream->device) return fail(cudaErrorInvalidResourceHandle);
  event->recorded = true;
  event->stream = stream->id;
  event->capture = stream->capture;
  event->capture_tail = stream->capture_tail;
  if (stream->capture) {
    if (stream->capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
    if (flags & cudaEventRecordExternal) event->capture.reset();
    return cudaSuccess;
  }
  if (int error = reject_legacy_use(stream)) return fail(error);
  // The device writes the timestamp when the stream reaches the event, which takes some time.
  Op op;
  op.kind = Op::EMPTY;
  event->at =
      schedule(op, stream, stream->id, api.correlation, stream_ready_time(stream), now() + 1'500, 200);
  if (!(event->flags & cudaEventDisableTiming)) stream->tail = event->at;
  spin_until(entered + 900);
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

// CUDA C++ Programming Guide, "Prohibited and Unhandled Operations": a captured event has no execution
// status.
static int reject_captured(Event* event) {
  if (event->capture) {
    Lock lock(mu);
    invalidate(*event->capture);
    return cudaErrorCapturedEvent;
  }
  return prohibited_by_capture() ? cudaErrorStreamCaptureUnsupported : 0;
}

EXPORT cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t handle) {
  RUNTIME_CALL(cudaEventQuery_v3020);
  NEED_CONTEXT();
  FIND_EVENT(event, handle);
  if (int error = reject_captured(event)) return fail(error);
  return !event->recorded || reached(event->at) ? cudaSuccess : cudaErrorNotReady;
}

EXPORT cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t handle) {
  RUNTIME_CALL(cudaEventSynchronize_v3020);
  NEED_CONTEXT();
  FIND_EVENT(event, handle);
  if (int error = reject_captured(event)) return fail(error);
  uint64_t start = now();
  FutureTimePtr at;
  uint32_t stream, id;
  {
    Lock lock(mu);
    at = event->recorded ? event->at : resolved(0);
    stream = event->stream;
    id = event->id;
  }
  wait_for(at);
  record_sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, api.correlation, stream, id, start,
              now());
  return fail(sticky_error());
}

EXPORT cudaError_t CUDARTAPI cudaEventElapsedTime(float* milliseconds, cudaEvent_t start_handle,
                                                  cudaEvent_t end_handle) {
  RUNTIME_CALL(cudaEventElapsedTime_v3020);
  NEED_CONTEXT();
  Lock lock(mu);
  FIND_EVENT(start, start_handle);
  FIND_EVENT(end, end_handle);
  if (start->capture || end->capture) return fail(cudaErrorCapturedEvent);
  if (!start->recorded || !end->recorded || ((start->flags | end->flags) & cudaEventDisableTiming))
    return fail(cudaErrorInvalidResourceHandle);
  if (!reached(start->at) || !reached(end->at)) return cudaErrorNotReady;
  *milliseconds = (float)(((double)end->at->at - (double)start->at->at) / 1e6);
  return cudaSuccess;
}
