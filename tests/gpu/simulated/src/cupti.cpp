// CUPTI: activity records, for Kineto.
#include "cupti.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <vector>

#include "errors.h"
#include "export.h"
#include "names.inc"
#include "process.h"
#include "timeline.h"

namespace sim {

namespace {

constexpr size_t kMaxCallbackIds = 4096;
constexpr int kCorrelationKinds = 16;

bool enabled[CUPTI_ACTIVITY_KIND_COUNT + 8];
bool runtime_ignored[kMaxCallbackIds], driver_ignored[kMaxCallbackIds];

// The subscriber's buffers, and the clock it wants for timestamps.
CUpti_BuffersCallbackRequestFunc request_buffer;
CUpti_BuffersCallbackCompleteFunc complete_buffer;
CUpti_TimestampCallbackFunc subscriber_clock;
// The same instant on both clocks.
struct ClockReading {
  uint64_t local, subscriber;
};
ClockReading anchor;
uint8_t* buffer;
size_t buffer_size, buffer_used, dropped_records;
bool buffer_refused;

std::atomic<uint32_t> next_correlation{1};
thread_local int call_depth = 0;
thread_local uint32_t outer_correlation = 0;
bool profiler_just_started;

struct ExternalIds {
  std::vector<uint64_t> stack[kCorrelationKinds];
};
thread_local ExternalIds* external_ids;

union Activity {
  CUpti_Activity any;
  CUpti_ActivityAPI api;
  CUpti_ActivityKernel11 kernel;
  CUpti_ActivityMemcpy6 copy;
  CUpti_ActivityMemset4 set;
  CUpti_ActivitySynchronization2 synchronization;
  CUpti_ActivityExternalCorrelation external;
};
struct Record {
  uint32_t size;
  uint64_t complete_at;
  Activity activity;
};
std::deque<Record>& records() {
  static auto* all = new std::deque<Record>;
  return *all;
}

size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel11);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    default:
      return 0;
  }
}

template <class Change>
void change_times(Activity& activity, Change change) {
  auto both = [&](auto& record) {
    record.start = change(record.start);
    record.end = change(record.end);
  };
  switch (activity.any.kind) {
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return both(activity.api);
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return both(activity.kernel);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return both(activity.copy);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return both(activity.set);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return both(activity.synchronization);
    default:
      return;
  }
}

void need_buffer() {
  if (buffer || !request_buffer || buffer_refused) return;
  size_t max_records = 0;
  request_buffer(&buffer, &buffer_size, &max_records);
  buffer_used = 0;
  if (!buffer) buffer_refused = true;
}

void return_buffer() {
  if (!buffer) return;
  uint8_t* full = buffer;
  buffer = nullptr;
  if (complete_buffer) complete_buffer(nullptr, 0, full, buffer_size, buffer_used);
}

// On a busy machine, this thread can be preempted between the two clock reads, so the closest pair of several
// is used.
ClockReading read_clocks() {
  if (!subscriber_clock) {
    uint64_t local = now();
    return {local, local};
  }
  ClockReading closest{};
  uint64_t shortest = UINT64_MAX;
  for (int attempt = 0; attempt < 100 && shortest > 2000; attempt++) {
    uint64_t before = now();
    uint64_t subscriber = subscriber_clock();
    uint64_t elapsed = now() - before;
    if (elapsed < shortest) {
      shortest = elapsed;
      closest = {before + elapsed / 2, subscriber};
    }
  }
  return closest;
}

// How much faster the subscriber's clock is than ours. A virtual machine that moved to another host may have a
// time stamp counter that is behind the one of before: then it is measured again.
double subscriber_rate(ClockReading current) {
  if (!subscriber_clock) return 1;
  if (current.local <= anchor.local || current.subscriber <= anchor.subscriber) {
    anchor = current;
    while (now() - anchor.local < 2000000) {
    }
    current = read_clocks();
    if (current.local <= anchor.local || current.subscriber <= anchor.subscriber) return 1;
  }
  return (double)(current.subscriber - anchor.subscriber) / (double)(current.local - anchor.local);
}

// Writes records of finished work (or of all work) into buffers, with timestamps in the subscriber's clock.
void write_records(bool all) {
  Lock lock(mu);
  uint64_t cutoff = now();
  ClockReading current = read_clocks();
  double slope = subscriber_rate(current);
  auto convert = [&](uint64_t time) {
    return (uint64_t)((long double)current.subscriber + (long double)(int64_t)(time - current.local) * slope);
  };
  std::deque<Record> unfinished;
  for (Record& record : records()) {
    if (!all && record.complete_at > cutoff) {
      unfinished.push_back(record);
      continue;
    }
    change_times(record.activity, convert);
    if (buffer && buffer_used + record.size > buffer_size) return_buffer();
    need_buffer();
    if (!buffer) {
      dropped_records++;
      continue;
    }
    memcpy(buffer + buffer_used, &record.activity, record.size);
    buffer_used += record.size;
  }
  records().swap(unfinished);
}

void add(const Record& record) {
  Lock lock(mu);
  if (!request_buffer) return;
  need_buffer();
  records().push_back(record);
  static size_t since_last = 0;
  if (++since_last >= 8192) {
    since_last = 0;
    write_records(false);
  }
}

// CUPTI identifies threads by pthread id unless it is configured to use the system's thread id.
uint32_t thread_id() {
  return (uint32_t)(uintptr_t)pthread_self();
}

// Fields common to kernel, memcpy and memset records.
template <class T>
void fill_common_fields(T& record, const Op& op, int device, uint32_t stream, uint32_t correlation,
                        uint64_t start, uint64_t end) {
  record.start = start;
  record.end = end;
  record.deviceId = device;
  record.contextId = 1 + device;
  record.streamId = stream;
  record.correlationId = correlation;
  record.graphId = op.graph;
  record.graphNodeId = op.node;
}

}  // namespace

Api::Api(CUpti_CallbackDomain d, uint32_t id) : domain(d), callback_id(id) {
  bool runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
  outer = call_depth++ == 0;
  recorded = false;
  start = 0;
  if (!outer) {
    correlation = outer_correlation;
    return;
  }
  correlation = outer_correlation = next_correlation++;
  bool ignored = (runtime ? runtime_ignored : driver_ignored)[id % kMaxCallbackIds];
  recorded = enabled[runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER] && !ignored;
  if (tracing()) log("%s", runtime ? runtime_names[id] : driver_names[id]);
  if (!recorded) return;
  start = now();
  if (!enabled[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION] || !external_ids) return;
  for (int kind = 0; kind < kCorrelationKinds; kind++) {
    if (external_ids->stack[kind].empty()) continue;
    Record record{};
    record.size = sizeof record.activity.external;
    record.activity.external.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.activity.external.externalKind = (CUpti_ExternalCorrelationKind)kind;
    record.activity.external.externalId = external_ids->stack[kind].back();
    record.activity.external.correlationId = correlation;
    add(record);
  }
}

Api::~Api() {
  call_depth--;
  if (!recorded) return;
  Record record{};
  auto& call = record.activity.api;
  record.size = sizeof call;
  call.kind =
      domain == CUPTI_CB_DOMAIN_RUNTIME_API ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
  call.cbid = callback_id;
  call.start = start;
  call.end = now();
  call.processId = getpid();
  call.threadId = thread_id();
  call.correlationId = correlation;
  add(record);
}

void record_op(const Op& op, int device, uint32_t stream, uint32_t correlation, uint64_t start,
               uint64_t end) {
  // The first kernel after the profiler starts is slow, because CUPTI patches the loaded modules.
  if (profiler_just_started) {
    profiler_just_started = false;
    if (const char* milliseconds = getenv("SIMGPU_CUPTI_MS")) usleep(atoi(milliseconds) * 1000);
  }
  Record record{};
  record.complete_at = end;
  switch (op.kind) {
    case Op::KERNEL: {
      if (!enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] && !enabled[CUPTI_ACTIVITY_KIND_KERNEL]) return;
      static std::atomic<int64_t> next_grid{1};
      auto& kernel = record.activity.kernel;
      record.size = sizeof kernel;
      kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
      fill_common_fields(kernel, op, device, stream, correlation, start, end);
      kernel.gridX = op.grid.x;
      kernel.gridY = op.grid.y;
      kernel.gridZ = op.grid.z;
      kernel.blockX = op.block.x;
      kernel.blockY = op.block.y;
      kernel.blockZ = op.block.z;
      kernel.dynamicSharedMemory = op.dynamic_shared;
      kernel.staticSharedMemory = op.static_shared;
      kernel.registersPerThread = op.registers;
      kernel.name = op.name;
      kernel.gridId = next_grid++;
      break;
    }
    case Op::MEMCPY: {
      if (!enabled[CUPTI_ACTIVITY_KIND_MEMCPY]) return;
      auto& copy = record.activity.copy;
      record.size = sizeof copy;
      copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
      fill_common_fields(copy, op, device, stream, correlation, start, end);
      copy.copyKind = op.copy_kind;
      copy.srcKind = op.source_kind;
      copy.dstKind = op.target_kind;
      copy.bytes = op.bytes;
      copy.copyCount = 1;
      break;
    }
    case Op::MEMSET: {
      if (!enabled[CUPTI_ACTIVITY_KIND_MEMSET]) return;
      auto& set = record.activity.set;
      record.size = sizeof set;
      set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
      fill_common_fields(set, op, device, stream, correlation, start, end);
      set.value = op.value;
      set.bytes = op.bytes;
      set.memoryKind = op.target_kind;
      break;
    }
    case Op::HOST_FUNCTION:
    case Op::EMPTY:
      return;
  }
  add(record);
}

void record_sync(CUpti_ActivitySynchronizationType type, uint32_t correlation, uint32_t stream,
                 uint32_t event, uint64_t start, uint64_t end) {
  if (!enabled[CUPTI_ACTIVITY_KIND_SYNCHRONIZATION]) return;
  Record record{};
  record.complete_at = end;
  auto& synchronization = record.activity.synchronization;
  record.size = sizeof synchronization;
  synchronization.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  synchronization.type = type;
  synchronization.start = start;
  synchronization.end = end;
  synchronization.correlationId = correlation;
  synchronization.contextId = 1 + current_device();
  synchronization.streamId = stream;
  synchronization.cudaEventId = event;
  add(record);
}

}  // namespace sim

using namespace sim;

EXPORT CUptiResult CUPTIAPI cuptiGetVersion(uint32_t* version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t* time) {
  *time = subscriber_clock ? subscriber_clock() : now();
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char** text) {
  switch (result) {
    case CUPTI_SUCCESS:
      *text = "CUPTI_SUCCESS";
      break;
    case CUPTI_ERROR_INVALID_KIND:
      *text = "CUPTI_ERROR_INVALID_KIND";
      break;
    case CUPTI_ERROR_MAX_LIMIT_REACHED:
      *text = "CUPTI_ERROR_MAX_LIMIT_REACHED";
      break;
    case CUPTI_ERROR_NOT_INITIALIZED:
      *text = "CUPTI_ERROR_NOT_INITIALIZED";
      break;
    case CUPTI_ERROR_NOT_SUPPORTED:
      *text = "CUPTI_ERROR_NOT_SUPPORTED";
      break;
    case CUPTI_ERROR_QUEUE_EMPTY:
      *text = "CUPTI_ERROR_QUEUE_EMPTY";
      break;
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
      break;
    default:
      *text = "CUPTI_ERROR_UNKNOWN";
  }
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  Lock lock(mu);
  if (clock == subscriber_clock) return CUPTI_SUCCESS;
  subscriber_clock = clock;
  anchor = read_clocks();
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                           CUpti_BuffersCallbackCompleteFunc complete) {
  Lock lock(mu);
  log("cuptiActivityRegisterCallbacks");
  request_buffer = request;
  complete_buffer = complete;
  buffer_refused = false;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (init_driver() == cudaErrorInitializationError) {
    log("CUPTI after a fork");
    return CUPTI_ERROR_NOT_INITIALIZED;
  }
  log("cuptiActivityEnable %d", kind);
  if (kind < 0 || kind >= CUPTI_ACTIVITY_KIND_COUNT) return CUPTI_ERROR_INVALID_KIND;
  enabled[kind] = true;
  buffer_refused = false;
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) profiler_just_started = true;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
  if (kind < 0 || kind >= CUPTI_ACTIVITY_KIND_COUNT) return CUPTI_ERROR_INVALID_KIND;
  enabled[kind] = false;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnableRuntimeApi(uint32_t id, uint8_t enable) {
  runtime_ignored[id % kMaxCallbackIds] = !enable;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnableDriverApi(uint32_t id, uint8_t enable) {
  driver_ignored[id % kMaxCallbackIds] = !enable;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t) {
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult CUPTIAPI cuptiActivitySetAttribute(CUpti_ActivityAttribute, size_t*, void*) {
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* count) {
  Lock lock(mu);
  *count = dropped_records;
  dropped_records = 0;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flags) {
  log("cuptiActivityFlushAll %u, %zu records", flags, records().size());
  write_records(flags & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  return_buffer();
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t* start, size_t size, CUpti_Activity** record) {
  uint8_t* next = start;
  if (*record) {
    size_t length = size_of((*record)->kind);
    if (!length) return CUPTI_ERROR_INVALID_KIND;
    next = (uint8_t*)*record + length;
  }
  if (next >= start + size) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = (CUpti_Activity*)next;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                                   uint64_t id) {
  if (!external_ids) external_ids = new ExternalIds;
  external_ids->stack[kind % kCorrelationKinds].push_back(id);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                                  uint64_t* id) {
  if (!external_ids || external_ids->stack[kind % kCorrelationKinds].empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  auto& stack = external_ids->stack[kind % kCorrelationKinds];
  if (id) *id = stack.back();
  stack.pop_back();
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                                                 const char** name) {
  bool runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
  size_t count = runtime ? std::size(runtime_names) : std::size(driver_names);
  if ((!runtime && domain != CUPTI_CB_DOMAIN_DRIVER_API) || id >= count) return CUPTI_ERROR_INVALID_PARAMETER;
  *name = runtime ? runtime_names[id] : driver_names[id];
  return CUPTI_SUCCESS;
}

// Callbacks are never invoked: Kineto subscribes only to detect another active profiler.
static bool subscribed;

EXPORT CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc, void*) {
  if (subscribed) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  subscribed = true;
  *handle = (CUpti_SubscriberHandle)&subscribed;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle) {
  subscribed = false;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain,
                                                CUpti_CallbackId) {
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult CUPTIAPI cuptiEnableDomain(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain) {
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult CUPTIAPI cuptiFinalize() {
  return CUPTI_SUCCESS;
}
