// CUPTI: activity records.
#include "cupti.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <deque>
#include <vector>
#include "cost_model.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "memory.h"
#include "names.inc"
#include "process.h"
#include "timeline.h"
namespace sim {
static bool enabled[CUPTI_ACTIVITY_KIND_COUNT + 8];
static std::vector<uint8_t> rt_off(4096, 0), dr_off(4096, 0);
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static CUpti_TimestampCallbackFunc stamp;
static uint64_t anchor_mono, anchor_stamp;
static uint8_t* buffer;
static size_t buffer_size, buffer_at;
static size_t dropped;
static bool rejected;
static std::atomic<uint32_t> next_corr{1};
static thread_local int depth = 0;
struct Ext {
  std::vector<uint64_t> stack[16];
};
static thread_local Ext* ext;
union Any {
  CUpti_Activity any;
  CUpti_ActivityAPI api;
  CUpti_ActivityKernel11 kernel;
  CUpti_ActivityMemcpy6 copy;
  CUpti_ActivityMemset4 set;
  CUpti_ActivitySynchronization2 sync;
  CUpti_ActivityExternalCorrelation ext;
};
struct Rec {
  uint32_t size;
  uint64_t ready;
  Any a;
};
static std::deque<Rec>* pending = new std::deque<Rec>;
static size_t size_of(CUpti_ActivityKind k) {
  switch (k) {
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
static void get_buffer() {
  if (buffer || !request || rejected) return;
  size_t n = 0;
  request(&buffer, &buffer_size, &n);
  buffer_at = 0;
  if (!buffer) rejected = true;
}
static void give_back() {
  if (!buffer) return;
  uint8_t* b = buffer;
  size_t s = buffer_size, v = buffer_at;
  buffer = nullptr;
  if (complete) complete(nullptr, 0, b, s, v);
}
static void flush(bool all) {
  Lock l(mu);
  uint64_t t = now();
  double slope = 1;
  uint64_t m0 = t, s0 = t;
  if (stamp) {
    uint64_t a = now();
    s0 = stamp();
    uint64_t b = now();
    m0 = (a + b) / 2;
    t = b;
    if (m0 > anchor_mono) slope = (double)(s0 - anchor_stamp) / (double)(m0 - anchor_mono);
  }
  auto conv = [&](uint64_t v) -> uint64_t {
    return (uint64_t)((long double)s0 + (long double)((int64_t)(v - m0)) * slope);
  };
  std::deque<Rec> keep;
  for (auto& r : *pending) {
    if (!all && r.ready > t) {
      keep.push_back(r);
      continue;
    }
    switch (r.a.any.kind) {
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER:
        r.a.api.start = conv(r.a.api.start);
        r.a.api.end = conv(r.a.api.end);
        break;
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        r.a.kernel.start = conv(r.a.kernel.start);
        r.a.kernel.end = conv(r.a.kernel.end);
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        r.a.copy.start = conv(r.a.copy.start);
        r.a.copy.end = conv(r.a.copy.end);
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        r.a.set.start = conv(r.a.set.start);
        r.a.set.end = conv(r.a.set.end);
        break;
      case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        r.a.sync.start = conv(r.a.sync.start);
        r.a.sync.end = conv(r.a.sync.end);
        break;
      default:
        break;
    }
    if (buffer && buffer_at + r.size > buffer_size) give_back();
    get_buffer();
    if (!buffer) {
      dropped++;
      continue;
    }
    memcpy(buffer + buffer_at, &r.a, r.size);
    buffer_at += r.size;
  }
  pending->swap(keep);
}
static void add(const Rec& r) {
  Lock l(mu);
  if (!request) return;
  get_buffer();
  pending->push_back(r);
  static size_t since = 0;
  if (++since >= 8192) {
    since = 0;
    flush(false);
  }
}
static uint32_t tid() {
  return (uint32_t)(uintptr_t)pthread_self();
}
Api::Api(CUpti_CallbackDomain d, uint32_t c) : domain(d), callback_id(c) {
  outer = depth++ == 0;
  recorded = false;
  correlation = 0;
  if (outer) {
    correlation = next_corr++;
    auto k = d == CUPTI_CB_DOMAIN_RUNTIME_API ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
    recorded = enabled[k] && !(d == CUPTI_CB_DOMAIN_RUNTIME_API ? rt_off : dr_off)[c & 4095];
    start = recorded ? now() : 0;
  }
  if (tracing() && outer) log("%s", d == CUPTI_CB_DOMAIN_RUNTIME_API ? runtime_names[c] : driver_names[c]);
  static thread_local uint32_t outer_corr;
  if (outer)
    outer_corr = correlation;
  else
    correlation = outer_corr;
  if (recorded && enabled[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION] && ext)
    for (int k = 0; k < 16; k++)
      if (!ext->stack[k].empty()) {
        Rec r{};
        r.size = sizeof(CUpti_ActivityExternalCorrelation);
        r.a.ext.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
        r.a.ext.externalKind = (CUpti_ExternalCorrelationKind)k;
        r.a.ext.externalId = ext->stack[k].back();
        r.a.ext.correlationId = correlation;
        add(r);
      }
}
Api::~Api() {
  depth--;
  if (!recorded) return;
  Rec r{};
  r.size = sizeof(CUpti_ActivityAPI);
  r.a.api.kind =
      domain == CUPTI_CB_DOMAIN_RUNTIME_API ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
  r.a.api.cbid = callback_id;
  r.a.api.start = start;
  r.a.api.end = now();
  r.a.api.processId = getpid();
  r.a.api.threadId = tid();
  r.a.api.correlationId = correlation;
  add(r);
}
static bool fresh;
void mark_fresh() {
  fresh = true;
}
void record_op(const Op& op, Stream* s, uint32_t corr, uint64_t start, uint64_t end) {
  if (fresh && enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]) {
    fresh = false;
    if (const char* e = getenv("SIMGPU_CUPTI_MS")) usleep(atoi(e) * 1000);
  }
  Rec r{};
  r.ready = end;
  if (op.kind == Op::KERNEL) {
    if (!enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] && !enabled[CUPTI_ACTIVITY_KIND_KERNEL]) return;
    auto& k = r.a.kernel;
    r.size = sizeof k;
    k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    k.start = start;
    k.end = end;
    k.deviceId = s->device;
    k.contextId = 1 + s->device;
    k.streamId = s->id;
    k.correlationId = corr;
    k.gridX = op.grid.x;
    k.gridY = op.grid.y;
    k.gridZ = op.grid.z;
    k.blockX = op.block.x;
    k.blockY = op.block.y;
    k.blockZ = op.block.z;
    k.dynamicSharedMemory = op.dynamic_shared;
    k.staticSharedMemory = op.static_shared;
    k.registersPerThread = op.registers;
    k.name = op.name;
    k.graphId = op.graph;
    k.graphNodeId = op.node;
    static int64_t grid_id = 1;
    k.gridId = grid_id++;
  } else if (op.kind == Op::MEMCPY) {
    if (!enabled[CUPTI_ACTIVITY_KIND_MEMCPY]) return;
    auto& k = r.a.copy;
    r.size = sizeof k;
    k.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
    k.copyKind = op.copy_kind;
    k.srcKind = op.source_kind;
    k.dstKind = op.target_kind;
    k.bytes = op.bytes;
    k.start = start;
    k.end = end;
    k.deviceId = s->device;
    k.contextId = 1 + s->device;
    k.streamId = s->id;
    k.correlationId = corr;
    k.graphId = op.graph;
    k.graphNodeId = op.node;
    k.copyCount = 1;
  } else if (op.kind == Op::MEMSET) {
    if (!enabled[CUPTI_ACTIVITY_KIND_MEMSET]) return;
    auto& k = r.a.set;
    r.size = sizeof k;
    k.kind = CUPTI_ACTIVITY_KIND_MEMSET;
    k.value = op.value;
    k.bytes = op.bytes;
    k.memoryKind = op.target_kind;
    k.start = start;
    k.end = end;
    k.deviceId = s->device;
    k.contextId = 1 + s->device;
    k.streamId = s->id;
    k.correlationId = corr;
    k.graphId = op.graph;
    k.graphNodeId = op.node;
  } else
    return;
  add(r);
}
void record_sync(CUpti_ActivitySynchronizationType type, uint32_t corr, uint32_t stream, uint32_t event,
                 uint64_t start, uint64_t end) {
  if (!enabled[CUPTI_ACTIVITY_KIND_SYNCHRONIZATION]) return;
  Rec r{};
  r.ready = end;
  auto& k = r.a.sync;
  r.size = sizeof k;
  k.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  k.type = type;
  k.start = start;
  k.end = end;
  k.correlationId = corr;
  k.contextId = 1;
  k.streamId = stream;
  k.cudaEventId = event;
  add(r);
}
}  // namespace sim
using namespace sim;
#define C(...) EXPORT CUptiResult CUPTIAPI __VA_ARGS__
C(cuptiGetVersion(uint32_t* v)) {
  *v = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
C(cuptiGetTimestamp(uint64_t* t)) {
  *t = stamp ? stamp() : now();
  return CUPTI_SUCCESS;
}
C(cuptiGetResultString(CUptiResult r, const char** s)) {
  *s = r == CUPTI_SUCCESS                   ? "CUPTI_SUCCESS"
       : r == CUPTI_ERROR_MAX_LIMIT_REACHED ? "CUPTI_ERROR_MAX_LIMIT_REACHED"
                                            : "CUPTI_ERROR";
  return CUPTI_SUCCESS;
}
C(cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc f)) {
  Lock l(mu);
  if (f != stamp) {
    stamp = f;
    anchor_mono = now();
    anchor_stamp = f ? f() : 0;
  }
  return CUPTI_SUCCESS;
}
C(cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc r, CUpti_BuffersCallbackCompleteFunc c)) {
  Lock l(mu);
  log("cuptiActivityRegisterCallbacks");
  request = r;
  complete = c;
  rejected = false;
  return CUPTI_SUCCESS;
}
C(cuptiActivityEnable(CUpti_ActivityKind k)) {
  if (init_driver() == 3) {
    log("CUPTI after a fork");
    return CUPTI_ERROR_NOT_INITIALIZED;
  }
  if ((unsigned)k < sizeof enabled) enabled[k] = true;
  rejected = false;
  if (k == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) mark_fresh();
  log("cuptiActivityEnable %d", k);
  return CUPTI_SUCCESS;
}
C(cuptiActivityDisable(CUpti_ActivityKind k)) {
  if ((unsigned)k < sizeof enabled) enabled[k] = false;
  return CUPTI_SUCCESS;
}
C(cuptiActivityEnableRuntimeApi(uint32_t c, uint8_t on)) {
  rt_off[c & 4095] = !on;
  return CUPTI_SUCCESS;
}
C(cuptiActivityEnableDriverApi(uint32_t c, uint8_t on)) {
  dr_off[c & 4095] = !on;
  return CUPTI_SUCCESS;
}
C(cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t)) {
  return CUPTI_SUCCESS;
}
C(cuptiActivitySetAttribute(CUpti_ActivityAttribute, size_t*, void*)) {
  return CUPTI_SUCCESS;
}
C(cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* n)) {
  *n = dropped;
  dropped = 0;
  return CUPTI_SUCCESS;
}
C(cuptiActivityFlushAll(uint32_t flag)) {
  {
    Lock l(mu);
    log("cuptiActivityFlushAll %u, %zu pending", flag, pending->size());
    flush(flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  give_back();
  return CUPTI_SUCCESS;
}
C(cuptiActivityGetNextRecord(uint8_t* b, size_t n, CUpti_Activity** r)) {
  uint8_t* at = b;
  if (*r) {
    size_t s = size_of((*r)->kind);
    if (!s) return CUPTI_ERROR_INVALID_KIND;
    at = (uint8_t*)*r + s;
  }
  if (at >= b + n) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *r = (CUpti_Activity*)at;
  return CUPTI_SUCCESS;
}
C(cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind k, uint64_t id)) {
  if (!ext) ext = new Ext;
  ext->stack[k & 15].push_back(id);
  return CUPTI_SUCCESS;
}
C(cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind k, uint64_t* id)) {
  if (!ext || ext->stack[k & 15].empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  if (id) *id = ext->stack[k & 15].back();
  ext->stack[k & 15].pop_back();
  return CUPTI_SUCCESS;
}
C(cuptiGetCallbackName(CUpti_CallbackDomain d, uint32_t c, const char** s)) {
  if (d == CUPTI_CB_DOMAIN_RUNTIME_API && c < sizeof runtime_names / sizeof *runtime_names)
    *s = runtime_names[c];
  else if (d == CUPTI_CB_DOMAIN_DRIVER_API && c < sizeof driver_names / sizeof *driver_names)
    *s = driver_names[c];
  else
    return CUPTI_ERROR_INVALID_PARAMETER;
  return CUPTI_SUCCESS;
}
static bool subscribed;
C(cuptiSubscribe(CUpti_SubscriberHandle* h, CUpti_CallbackFunc, void*)) {
  if (subscribed) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  subscribed = true;
  *h = (CUpti_SubscriberHandle)1;
  return CUPTI_SUCCESS;
}
C(cuptiUnsubscribe(CUpti_SubscriberHandle)) {
  subscribed = false;
  return CUPTI_SUCCESS;
}
C(cuptiEnableCallback(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId)) {
  return CUPTI_SUCCESS;
}
C(cuptiEnableDomain(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain)) {
  return CUPTI_SUCCESS;
}
C(cuptiFinalize()) {
  return CUPTI_SUCCESS;
}
