#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>
#include "cost_model.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"

namespace sim {
std::recursive_mutex mu;
static const DeviceModel models[] = {
    {"NVIDIA H100 80GB HBM3", 9, 0, 132, 233472, 232448, 50 << 20, 79.1, 3.35e12, 67e12, 67e12, 494e12,
     989e12, 1979e12, 1980, 5120},
    {"NVIDIA A100-SXM4-80GB", 8, 0, 108, 167936, 166912, 40 << 20, 79.1, 2.04e12, 19.5e12, 19.5e12, 156e12,
     312e12, 624e12, 1410, 5120},
};
const DeviceModel& model() {
  static const DeviceModel* m = [] {
    const char* e = getenv("SIMGPU");
    return (e && (e[0] == 'a' || e[0] == 'A')) ? &models[1] : &models[0];
  }();
  return *m;
}
bool tracing() {
  static bool t = getenv("SIMGPU_TRACE") != nullptr;
  return t;
}
void log(const char* fmt, ...) {
  if (!tracing()) return;
  va_list a;
  va_start(a, fmt);
  char b[1024];
  int n = snprintf(b, 64, "[simgpu %d] ", getpid());
  n += vsnprintf(b + n, sizeof b - n - 2, fmt, a);
  va_end(a);
  if (n > 1020) n = 1020;
  b[n++] = '\n';
  static int fd = [] {
    const char* e = getenv("SIMGPU_TRACE");
    return e[0] == '/' ? open(e, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : 2;
  }();
  (void)!write(fd, b, n);
}
void wait_until(uint64_t t) {
  for (;;) {
    uint64_t n = now();
    if (n >= t) return;
    if (t - n > 80000) {
      timespec s{(time_t)((t - n - 60000) / 1000000000ull), (long)((t - n - 60000) % 1000000000ull)};
      nanosleep(&s, nullptr);
    }
  }
}
// --- devices and processes ---
static std::vector<int> visible;
int physical_count() {
  const char* e = getenv("SIMGPU_COUNT");
  return e ? atoi(e) : 1;
}
static void find_devices() {
  visible.clear();
  int n = physical_count();
  const char* e = getenv("CUDA_VISIBLE_DEVICES");
  if (!e) {
    for (int i = 0; i < n; i++) visible.push_back(i);
    return;
  }
  std::string s = e;
  size_t at = 0;
  while (at <= s.size() && !s.empty()) {
    size_t c = s.find(',', at);
    if (c == std::string::npos) c = s.size();
    std::string one = s.substr(at, c - at);
    at = c + 1;
    int found = -1;
    if (one.rfind("GPU-", 0) == 0) {
      for (int i = 0; i < n; i++) {
        unsigned char u[16];
        char t[64];
        uuid_of(i, u);
        snprintf(t, sizeof t, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
                 u[14], u[15]);
        if (strncmp(t, one.c_str(), one.size()) == 0) found = i;
      }
    } else {
      char* end;
      long v = strtol(one.c_str(), &end, 10);
      if (end != one.c_str() && v >= 0 && v < n) found = v;
    }
    if (found < 0) break;
    visible.push_back(found);
  }
}
static pid_t init_pid = 0;
static bool has_context[64];
static uint64_t* shared_used[64];
static std::map<char*, Range> ranges;
static uint64_t used[64];
static std::map<void*, Stream*> streams;
static Stream* default_streams[64];
static uint32_t next_stream = 13;
bool driver_ready() {
  return init_pid != 0;
}
int init_driver() {
  std::lock_guard<std::recursive_mutex> l(mu);
  if (init_pid && init_pid != getpid()) return 3;
  if (!init_pid) {
    find_devices();
    if (visible.empty()) return 100;
    init_pid = getpid();
    hold_device_files();
    log("driver initialised");
  }
  return 0;
}
int device_count() {
  return (int)visible.size();
}
int visible_to_physical(int d) {
  return d < (int)visible.size() ? visible[d] : d;
}
int& current_device() {
  static thread_local int d = 0;
  return d;
}
static void remove_shared() {
  if (init_pid != getpid()) return;
  for (int i = 0; i < 64; i++)
    if (shared_used[i]) {
      char f[64];
      snprintf(f, sizeof f, "/dev/shm/simgpu.%d.%d", getpid(), visible_to_physical(i));
      unlink(f);
    }
}
int init_context() {
  std::lock_guard<std::recursive_mutex> l(mu);
  if (int e = init_driver()) return e;
  int d = current_device();
  if (!has_context[d]) {
    has_context[d] = true;
    log("context made on device %d", d);
    char f[64];
    snprintf(f, sizeof f, "/dev/shm/simgpu.%d.%d", getpid(), visible_to_physical(d));
    int fd = open(f, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
      (void)!ftruncate(fd, 8);
      shared_used[d] = (uint64_t*)mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      close(fd);
      *shared_used[d] = context_bytes();
      static bool once = false;
      if (!once) {
        once = true;
        atexit(remove_shared);
      }
    }
    if (const char* e = getenv("SIMGPU_CONTEXT_MS")) usleep(atoi(e) * 1000);
    static bool thread_made = false;
    if (!thread_made && !getenv("SIMGPU_NO_THREAD")) {  // the driver has threads of its own
      thread_made = true;
      sigset_t all, old;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &old);
      pthread_t t;
      pthread_create(
          &t, nullptr,
          [](void*) -> void* {
            pthread_setname_np(pthread_self(), "cuda-EvtHandlr");
            for (;;) pause();
            return nullptr;
          },
          nullptr);
      pthread_detach(t);
      pthread_sigmask(SIG_SETMASK, &old, nullptr);
    }
  }
  return 0;
}
static thread_local int last_error = 0;
cudaError_t fail(int e) {
  if (e) {
    last_error = e;
    log("error %d", e);
  }
  return (cudaError_t)e;
}
uint64_t total_bytes() {
  static uint64_t t = [] {
    const char* e = getenv("SIMGPU_MEMORY_MB");
    return e ? strtoull(e, 0, 10) << 20 : (uint64_t)(model().memory_gib * (1ull << 30));
  }();
  return t;
}
uint64_t context_bytes() {
  return 520ull << 20;
}
uint64_t used_bytes(int d) {
  return used[d] + (has_context[d] ? context_bytes() : 0);
}
void uuid_of(int physical, unsigned char o[16]) {
  for (int i = 0; i < 16; i++) o[i] = (unsigned char)(0x51 + i * 7 + physical * 13);
}
// --- memory ---
static void account(int d, int64_t delta) {
  used[d] += delta;
  if (shared_used[d]) *shared_used[d] = used[d] + context_bytes();
}
int dev_malloc(void** p, size_t n) {
  std::lock_guard<std::recursive_mutex> l(mu);
  int d = current_device();
  if (n == 0) {
    *p = nullptr;
    return 0;
  }
  size_t size = (n + 511) & ~511ull;
  size_t charged = (size + (2ull << 20) - 1) & ~((2ull << 20) - 1);
  if (used_bytes(d) + charged > total_bytes()) return 2;
  // Aligned to 2 MiB, as the real one does.
  size_t align = 2ull << 20;
  char* raw = (char*)mmap(nullptr, charged + align, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return 2;
  char* base = (char*)(((uintptr_t)raw + align - 1) & ~(align - 1));
  if (base > raw) munmap(raw, base - raw);
  if (raw + charged + align > base + charged)
    munmap(base + charged, raw + charged + align - (base + charged));
  madvise(base, charged, MADV_NOHUGEPAGE);
  ranges[base] = {base, charged, 2, d};
  account(d, charged);
  *p = base;
  return 0;
}
int dev_free(void* p) {
  std::lock_guard<std::recursive_mutex> l(mu);
  if (!p) return 0;
  auto it = ranges.find((char*)p);
  if (it == ranges.end()) return 1;
  munmap(p, it->second.size);
  account(it->second.device, -(int64_t)it->second.size);
  ranges.erase(it);
  return 0;
}
static void host_range(void* p, size_t n, int kind) {
  std::lock_guard<std::recursive_mutex> l(mu);
  ranges[(char*)p] = {(char*)p, n, kind, current_device()};
}
bool find_range(const void* p, Range* out) {
  std::lock_guard<std::recursive_mutex> l(mu);
  auto it = ranges.upper_bound((char*)p);
  if (it == ranges.begin()) return false;
  --it;
  if ((char*)p >= it->second.base + it->second.size) return false;
  *out = it->second;
  return true;
}
// --- streams ---
Stream* stream_of(void* h) {
  std::lock_guard<std::recursive_mutex> l(mu);
  if (h == nullptr || h == (void*)1 || h == (void*)2) {
    Stream*& s = default_streams[current_device()];
    if (!s) s = new Stream{7, current_device(), 0, 0};
    return s;
  }
  return (Stream*)h;
}
uint64_t device_idle_at(int d) {
  std::lock_guard<std::recursive_mutex> l(mu);
  uint64_t t = 0;
  if (default_streams[d]) t = default_streams[d]->idle_at;
  for (auto& [h, s] : streams)
    if (s->device == d) t = std::max(t, s->idle_at);
  return t;
}
void enqueue(Stream* s, Op op, uint32_t corr) {
  uint64_t wait = 0;
  {
    std::lock_guard<std::recursive_mutex> l(mu);
    if (s->capture) {
      op.graph = s->capture->id;
      op.node = s->capture->ops.size() + 1 + ((uint64_t)op.graph << 32);
      s->capture->ops.push_back(std::move(op));
      return;
    }
    uint64_t t = now();
    while (!s->pending.empty() && s->pending.front() <= t) s->pending.pop_front();
    if (s->pending.size() >= 1024) wait = s->pending.front();
  }
  if (wait) wait_until(wait);
  std::lock_guard<std::recursive_mutex> l(mu);
  uint64_t t = now();
  // A launch reaches an idle GPU some microseconds later; a busy one goes on at once.
  uint64_t start = std::max(t + 2500, s->idle_at + (op.graph ? 300 : 700));
  uint64_t end = start + op.duration_ns;
  s->idle_at = end;
  s->pending.push_back(end);
  if (op.effect) op.effect();
  record_op(op, s, corr, start, end);
}
const char* intern(const std::string& s) {
  std::lock_guard<std::recursive_mutex> l(mu);
  static std::set<std::string>* all = new std::set<std::string>;
  return all->insert(s).first->c_str();
}
// --- time model ---
void launch_op(void* stream, Op op, uint32_t callback_id) {
  Api api(CUPTI_CB_DOMAIN_RUNTIME_API,
          callback_id ? callback_id : (uint32_t)CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
  enqueue(stream_of(stream), std::move(op), api.correlation);
}
void launch_named(void* stream, const char* name, uint64_t duration_ns, dim3 g, dim3 b, uint32_t cbid) {
  Op op;
  op.name = name;
  op.grid = g;
  op.block = b;
  op.duration_ns = duration_ns;
  op.registers = 128;
  launch_op(stream, op, cbid);
}
int device_attribute(int a) {
  const auto& m = model();
  switch (a) {
    case 1:
      return 1024;
    case 2:
    case 3:
      return 1024;
    case 4:
      return 64;
    case 5:
      return 2147483647;
    case 6:
    case 7:
      return 65535;
    case 8:
      return 49152;
    case 9:
      return 65536;
    case 10:
      return 32;
    case 11:
      return 2147483647;
    case 12:
      return 65536;
    case 13:
      return m.clock_mhz * 1000;
    case 14:
      return 512;
    case 15:
      return 1;
    case 16:
      return m.multiprocessors;
    case 17:
      return 0;
    case 18:
      return 0;
    case 19:
      return 1;
    case 20:
      return 0;
    case 31:
      return 1;
    case 32:
      return 1;
    case 33:
      return 0x18;
    case 34:
      return 0;
    case 35:
      return 0;
    case 36:
      return 2619000;
    case 37:
      return m.bus_bits;
    case 38:
      return m.l2_bytes;
    case 39:
      return 2048;
    case 40:
      return 3;
    case 41:
      return 1;
    case 75:
      return m.major;
    case 76:
      return m.minor;
    case 78:
      return 1;
    case 79:
    case 80:
      return 1;
    case 81:
      return m.shared_memory_per_sm;
    case 82:
      return 65536;
    case 83:
      return 1;
    case 84:
      return 0;
    case 86:
      return 1;
    case 87:
      return 2;
    case 89:
      return 1;
    case 90:
      return 1;
    case 91:
      return 1;
    case 95:
      return 1;
    case 97:
      return m.shared_memory_optin;
    case 99:
      return 1;
    case 102:
      return 1;
    case 106:
      return 32;
    case 108:
      return m.l2_bytes / 2;
    case 111:
      return 1024;
    case 115:
      return 1;
    case 120:
      return m.major >= 9;
    case 132:
      return 0;
    default:
      return 0;
  }
}
void fill_properties(cudaDeviceProp* p, int device) {
  const auto& m = model();
  memset(p, 0, sizeof *p);
  strcpy(p->name, m.name);
  uuid_of(visible_to_physical(device), (unsigned char*)p->uuid.bytes);
  p->totalGlobalMem = total_bytes();
  p->sharedMemPerBlock = 49152;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->memPitch = 2147483647;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = m.major;
  p->minor = m.minor;
  p->textureAlignment = 512;
  p->texturePitchAlignment = 32;
  p->multiProcessorCount = m.multiprocessors;
  p->canMapHostMemory = 1;
  p->concurrentKernels = 1;
  p->ECCEnabled = 1;
  p->pciBusID = 0x18 + visible_to_physical(device);
  p->asyncEngineCount = 3;
  p->unifiedAddressing = 1;
  p->memoryBusWidth = m.bus_bits;
  p->l2CacheSize = m.l2_bytes;
  p->persistingL2CacheMaxSize = m.l2_bytes / 2;
  p->maxThreadsPerMultiProcessor = 2048;
  p->streamPrioritiesSupported = 1;
  p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->sharedMemPerMultiprocessor = m.shared_memory_per_sm;
  p->regsPerMultiprocessor = 65536;
  p->managedMemory = 1;
  p->concurrentManagedAccess = 1;
  p->computePreemptionSupported = 1;
  p->cooperativeLaunch = 1;
  p->sharedMemPerBlockOptin = m.shared_memory_optin;
  p->maxBlocksPerMultiProcessor = 32;
  p->reservedSharedMemPerBlock = 1024;
  p->hostRegisterSupported = 1;
  p->memoryPoolsSupported = 1;
  p->clusterLaunch = m.major >= 9;
  p->maxSurface1D = 32768;
  p->maxTexture1D = 131072;
}
}  // namespace sim
using namespace sim;
// ---------------- runtime API ----------------
#define R(...) EXPORT cudaError_t CUDARTAPI __VA_ARGS__
R(cudaGetDeviceCount(int* n)) {
  RUNTIME_CALL(cudaGetDeviceCount_v3020);
  *n = 0;
  if (int e = init_driver()) return fail(e);
  *n = device_count();
  return cudaSuccess;
}
R(cudaGetDevice(int* d)) {
  RUNTIME_CALL(cudaGetDevice_v3020);
  if (int e = init_driver()) return fail(e);
  *d = current_device();
  return cudaSuccess;
}
R(cudaSetDevice(int d)) {
  RUNTIME_CALL(cudaSetDevice_v3020);
  if (int e = init_driver()) return fail(e);
  if (d < 0 || d >= device_count()) return fail(101);
  current_device() = d;
  NEED_CONTEXT();
  return cudaSuccess;
}
R(cudaGetDeviceProperties(cudaDeviceProp* p, int d)) {
  RUNTIME_CALL(cudaGetDeviceProperties_v12000);
  if (int e = init_driver()) return fail(e);
  if (d < 0 || d >= device_count()) return fail(101);
  fill_properties(p, d);
  return cudaSuccess;
}
R(cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int d)) {
  RUNTIME_CALL(cudaDeviceGetAttribute_v5000);
  if (int e = init_driver()) return fail(e);
  *v = device_attribute((int)a);
  return cudaSuccess;
}
R(cudaDeviceGetPCIBusId(char* s, int n, int d)) {
  if (int e = init_driver()) return fail(e);
  snprintf(s, n, "0000:%02X:00.0", 0x18 + visible_to_physical(d));
  return cudaSuccess;
}
R(cudaDeviceCanAccessPeer(int* v, int a, int b)) {
  *v = a != b;
  return cudaSuccess;
}
R(cudaDeviceEnablePeerAccess(int, unsigned)) {
  return cudaSuccess;
}
R(cudaDeviceGetStreamPriorityRange(int* lo, int* hi)) {
  RUNTIME_CALL(cudaDeviceGetStreamPriorityRange_v5050);
  NEED_CONTEXT();
  if (lo) *lo = 0;
  if (hi) *hi = -5;
  return cudaSuccess;
}
R(cudaDriverGetVersion(int* v)) {
  *v = 13020;
  return cudaSuccess;
}
R(cudaRuntimeGetVersion(int* v)) {
  *v = 13020;
  return cudaSuccess;
}
R(cudaGetLastError()) {
  int e = last_error;
  last_error = 0;
  return (cudaError_t)e;
}
R(cudaPeekAtLastError()) {
  return (cudaError_t)last_error;
}
static const struct {
  int e;
  const char *name, *text;
} errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {600, "cudaErrorNotReady", "device not ready"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"}};
EXPORT const char* cudaGetErrorName(cudaError_t e) {
  for (auto& x : errors)
    if (x.e == e) return x.name;
  return "cudaErrorUnknown";
}
EXPORT const char* cudaGetErrorString(cudaError_t e) {
  for (auto& x : errors)
    if (x.e == e) return x.text;
  return "unknown error";
}
// memory
R(cudaMalloc(void** p, size_t n)) {
  RUNTIME_CALL(cudaMalloc_v3020);
  NEED_CONTEXT();
  return fail(dev_malloc(p, n));
}
R(cudaMallocManaged(void** p, size_t n, unsigned)) {
  RUNTIME_CALL(cudaMallocManaged_v6000);
  NEED_CONTEXT();
  return fail(dev_malloc(p, n));
}
R(cudaFree(void* p)) {
  RUNTIME_CALL(cudaFree_v3020);
  NEED_CONTEXT();
  wait_until(device_idle_at(current_device()));
  return fail(dev_free(p));
}
R(cudaMallocAsync(void** p, size_t n, cudaStream_t)) {
  RUNTIME_CALL(cudaMallocAsync_v11020);
  NEED_CONTEXT();
  return fail(dev_malloc(p, n));
}
R(cudaFreeAsync(void* p, cudaStream_t)) {
  RUNTIME_CALL(cudaFreeAsync_v11020);
  NEED_CONTEXT();
  return fail(dev_free(p));
}
static int host_alloc(void** p, size_t n) {
  *p = mmap(nullptr, n ? n : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*p == MAP_FAILED) return 2;
  host_range(*p, n, 1);
  return 0;
}
R(cudaHostAlloc(void** p, size_t n, unsigned)) {
  RUNTIME_CALL(cudaHostAlloc_v3020);
  NEED_CONTEXT();
  return fail(host_alloc(p, n));
}
R(cudaMallocHost(void** p, size_t n)) {
  RUNTIME_CALL(cudaMallocHost_v3020);
  NEED_CONTEXT();
  return fail(host_alloc(p, n));
}
R(cudaFreeHost(void* p)) {
  RUNTIME_CALL(cudaFreeHost_v3020);
  NEED_CONTEXT();
  Lock l(mu);
  auto it = ranges.find((char*)p);
  if (it == ranges.end()) return fail(1);
  munmap(p, it->second.size);
  ranges.erase(it);
  return cudaSuccess;
}
R(cudaHostRegister(void* p, size_t n, unsigned)) {
  RUNTIME_CALL(cudaHostRegister_v4000);
  NEED_CONTEXT();
  host_range(p, n, 1);
  return cudaSuccess;
}
R(cudaHostUnregister(void* p)) {
  RUNTIME_CALL(cudaHostUnregister_v4000);
  Lock l(mu);
  return fail(ranges.erase((char*)p) ? 0 : 1);
}
R(cudaMemGetInfo(size_t* f, size_t* t)) {
  RUNTIME_CALL(cudaMemGetInfo_v3020);
  NEED_CONTEXT();
  *t = total_bytes();
  *f = *t - std::min(*t, used_bytes(current_device()));
  return cudaSuccess;
}
R(cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p)) {
  RUNTIME_CALL(cudaPointerGetAttributes_v4000);
  memset(a, 0, sizeof *a);
  a->device = -1;
  if (init_pid && init_pid != getpid()) return fail(3);
  Range r;
  if (!find_range(p, &r)) {
    a->type = cudaMemoryTypeUnregistered;
    a->hostPointer = (void*)p;
    a->device = -2;
    return cudaSuccess;
  }
  a->type = r.kind == 1 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  a->device = r.device;
  a->devicePointer = (void*)p;
  a->hostPointer = r.kind == 1 ? (void*)p : nullptr;
  return cudaSuccess;
}
static int kind_of(const void* p) {
  Range r;
  if (!find_range(p, &r)) return CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  return r.kind == 1 ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
}
static void zero(void* p, int v, size_t n) {
  if (v == 0 && n >= (1 << 16)) {  // gives pages back instead of committing them
    char *a = (char*)(((uintptr_t)p + 4095) & ~4095ull), *b = (char*)(((uintptr_t)p + n) & ~4095ull);
    memset(p, 0, a - (char*)p);
    madvise(a, b - a, MADV_DONTNEED);
    memset(b, 0, (char*)p + n - b);
  } else
    memset(p, v, n);
}
static cudaError_t copy(void* dst, const void* src, size_t n, Stream* s, bool async, uint32_t corr) {
  if (n == 0) return cudaSuccess;
  int sk = kind_of(src), dk = kind_of(dst);
  bool sd = sk == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, dd = dk == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  Op op;
  op.kind = Op::MEMCPY;
  op.bytes = n;
  op.source_kind = sk;
  op.target_kind = dk;
  op.copy_kind = sd && dd ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD
                 : sd     ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                 : dd     ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                          : CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
  bool pageable = sk == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE || dk == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  double bw = sd && dd ? model().bandwidth * 0.4 : pageable ? 8e9 : 50e9;
  op.duration_ns = 900 + (uint64_t)(1e9 * n / bw);
  // Kernels compute nothing, so that a large copy within the device would only cost the host time.
  if (!(sd && dd && n > (1 << 18))) op.effect = [=] { memmove(dst, src, n); };
  if (s->capture) {
    if (pageable) return fail(900);
    enqueue(s, op, corr);
    return cudaSuccess;
  }
  enqueue(s, op, corr);
  // What is pageable is staged: the host waits, to the device for all but the last 64 KiB.
  if (!async || (pageable && (dd ? n > 65536 : true))) {
    uint64_t a = now();
    wait_until(s->idle_at);
    if (!async) record_sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, corr, s->id, 0, a, now());
  }
  return cudaSuccess;
}
R(cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind)) {
  RUNTIME_CALL(cudaMemcpy_v3020);
  NEED_CONTEXT();
  return copy(d, s, n, stream_of(nullptr), false, api.correlation);
}
R(cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind, cudaStream_t st)) {
  RUNTIME_CALL(cudaMemcpyAsync_v3020);
  NEED_CONTEXT();
  return copy(d, s, n, stream_of(st), true, api.correlation);
}
R(cudaMemcpyPeerAsync(void* d, int, const void* s, int, size_t n, cudaStream_t st)) {
  RUNTIME_CALL(cudaMemcpyPeerAsync_v4000);
  NEED_CONTEXT();
  return copy(d, s, n, stream_of(st), true, api.correlation);
}
R(cudaMemcpy2DAsync(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, cudaMemcpyKind,
                    cudaStream_t st)) {
  RUNTIME_CALL(cudaMemcpy2DAsync_v3020);
  NEED_CONTEXT();
  for (size_t i = 0; i + 1 < h; i++) memmove((char*)d + i * dp, (char*)s + i * sp, w);
  return h ? copy((char*)d + (h - 1) * dp, (char*)s + (h - 1) * sp, w, stream_of(st), true, api.correlation)
           : cudaSuccess;
}
static cudaError_t set(void* p, int v, size_t n, Stream* s, uint32_t corr) {
  if (!n) return cudaSuccess;
  Op op;
  op.kind = Op::MEMSET;
  op.bytes = n;
  op.value = v;
  op.target_kind = kind_of(p);
  op.duration_ns = 800 + (uint64_t)(1e9 * n / (model().bandwidth * 0.8));
  op.effect = [=] { zero(p, v, n); };
  enqueue(s, op, corr);
  return cudaSuccess;
}
R(cudaMemset(void* p, int v, size_t n)) {
  RUNTIME_CALL(cudaMemset_v3020);
  NEED_CONTEXT();
  return set(p, v, n, stream_of(nullptr), api.correlation);
}
R(cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t st)) {
  RUNTIME_CALL(cudaMemsetAsync_v3020);
  NEED_CONTEXT();
  return set(p, v, n, stream_of(st), api.correlation);
}
// memory pools
R(cudaDeviceGetDefaultMemPool(cudaMemPool_t* p, int)) {
  *p = (cudaMemPool_t)0x77;
  return cudaSuccess;
}
R(cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* v)) {
  *(uint64_t*)v = 0;
  return cudaSuccess;
}
R(cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*)) {
  return cudaSuccess;
}
R(cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t)) {
  return cudaSuccess;
}
R(cudaMemPoolTrimTo(cudaMemPool_t, size_t)) {
  return cudaSuccess;
}
R(cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* v)) {
  *(uint64_t*)v = 0;
  return cudaSuccess;
}
R(cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*)) {
  return cudaSuccess;
}
// kernels
struct Function {
  const char* name;
};
static std::unordered_map<const void*, Function*>& functions() {
  static auto* f = new std::unordered_map<const void*, Function*>;
  return *f;
}
struct Var {
  size_t size;
  void* dev;
};
static std::unordered_map<const void*, Var>& vars() {
  static auto* f = new std::unordered_map<const void*, Var>;
  return *f;
}
EXPORT void** __cudaRegisterFatBinary(void*) {
  static void* one;
  return &one;
}
EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
EXPORT void __cudaUnregisterFatBinary(void**) {}
EXPORT void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*,
                                   void*, void*, int*) {
  Lock l(mu);
  functions()[host] = new Function{name};
}
EXPORT void __cudaRegisterVar(void**, char* host, char*, const char*, int, size_t size, int, int) {
  Lock l(mu);
  vars()[host] = {size, nullptr};
}
EXPORT void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}
struct Config {
  dim3 g, b;
  size_t sm;
  void* s;
};
static thread_local std::vector<Config>* configs;
EXPORT unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t sm, cudaStream_t s) {
  if (!configs) configs = new std::vector<Config>;
  configs->push_back({g, b, sm, s});
  return 0;
}
EXPORT cudaError_t __cudaPopCallConfiguration(dim3* g, dim3* b, size_t* sm, void* s) {
  if (!configs || configs->empty()) return fail(9);
  auto c = configs->back();
  configs->pop_back();
  *g = c.g;
  *b = c.b;
  *sm = c.sm;
  *(void**)s = c.s;
  return cudaSuccess;
}
static Function* function_of(const void* f) {
  Lock l(mu);
  auto it = functions().find(f);
  return it == functions().end() ? nullptr : it->second;
}
static cudaError_t launch(const char* name, dim3 g, dim3 b, void** args, size_t sm, void* st, uint32_t corr) {
  uint64_t threads = (uint64_t)b.x * b.y * b.z;
  if (threads == 0 || threads > 1024 || !g.x || !g.y || !g.z) return fail(9);
  Op op;
  op.name = name ? name : "unknown_kernel";
  op.grid = g;
  op.block = b;
  op.dynamic_shared = sm;
  op.duration_ns = kernel_ns(name, g, b, args);
  enqueue(stream_of(st), op, corr);
  return cudaSuccess;
}
R(cudaLaunchKernel(const void* f, dim3 g, dim3 b, void** args, size_t sm, cudaStream_t st)) {
  RUNTIME_CALL(cudaLaunchKernel_v7000);
  NEED_CONTEXT();
  auto* k = function_of(f);
  return launch(k ? k->name : nullptr, g, b, args, sm, st, api.correlation);
}
R(cudaLaunchCooperativeKernel(const void* f, dim3 g, dim3 b, void** args, size_t sm, cudaStream_t st)) {
  RUNTIME_CALL(cudaLaunchCooperativeKernel_v9000);
  NEED_CONTEXT();
  auto* k = function_of(f);
  return launch(k ? k->name : nullptr, g, b, args, sm, st, api.correlation);
}
R(cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** args)) {
  RUNTIME_CALL(cudaLaunchKernelExC_v11060);
  NEED_CONTEXT();
  auto* k = function_of(f);
  return launch(k ? k->name : ((Function*)f)->name, c->gridDim, c->blockDim, args, c->dynamicSmemBytes,
                c->stream, api.correlation);
}
EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* k, const void* f) {
  auto* x = function_of(f);
  if (!x) return fail(98);
  *k = (cudaKernel_t)x;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetKernel(cudaKernel_t* k, const void* f) {
  return __cudaGetKernel(k, f);
}
EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void** args, size_t sm,
                                      cudaStream_t st) {
  RUNTIME_CALL(cudaLaunchKernel_v7000);
  NEED_CONTEXT();
  return launch(((Function*)k)->name, g, b, args, sm, st, api.correlation);
}
R(cudaFuncGetAttributes(cudaFuncAttributes* a, const void*)) {
  RUNTIME_CALL(cudaFuncGetAttributes_v3020);
  NEED_CONTEXT();
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = model().major * 10 + model().minor;
  a->maxDynamicSharedSizeBytes = model().shared_memory_optin;
  a->preferredShmemCarveout = -1;
  return cudaSuccess;
}
R(cudaFuncSetAttribute(const void*, cudaFuncAttribute, int)) {
  RUNTIME_CALL(cudaFuncSetAttribute_v9000);
  return cudaSuccess;
}
R(cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int)) {
  return cudaSuccess;
}
R(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void*, int block, size_t sm,
                                                         unsigned)) {
  RUNTIME_CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_v7000);
  *n = std::max(
      1, std::min(2048 / std::max(1, block), sm ? (int)(model().shared_memory_per_sm / (sm + 1024)) : 32));
  return cudaSuccess;
}
R(cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* f, int block, size_t sm)) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, block, sm, 0);
}
R(cudaGetSymbolAddress(void** p, const void* s)) {
  NEED_CONTEXT();
  Lock l(mu);
  auto it = vars().find(s);
  if (it == vars().end()) return fail(13);
  if (!it->second.dev) dev_malloc(&it->second.dev, it->second.size);
  *p = it->second.dev;
  return cudaSuccess;
}
R(cudaMemcpyToSymbol(const void* s, const void* src, size_t n, size_t off, cudaMemcpyKind)) {
  void* p;
  if (auto e = cudaGetSymbolAddress(&p, s)) return e;
  RUNTIME_CALL(cudaMemcpyToSymbol_v3020);
  return copy((char*)p + off, src, n, stream_of(nullptr), false, api.correlation);
}
// libraries
R(cudaLibraryLoadData(cudaLibrary_t* l, const void*, cudaJitOption*, void**, unsigned, cudaLibraryOption*,
                      void**, unsigned)) {
  *l = (cudaLibrary_t) new int;
  return cudaSuccess;
}
R(cudaLibraryLoadFromFile(cudaLibrary_t* l, const char*, cudaJitOption*, void**, unsigned, cudaLibraryOption*,
                          void**, unsigned)) {
  *l = (cudaLibrary_t) new int;
  return cudaSuccess;
}
R(cudaLibraryUnload(cudaLibrary_t)) {
  return cudaSuccess;
}
R(cudaLibraryGetKernel(cudaKernel_t* k, cudaLibrary_t, const char* name)) {
  *k = (cudaKernel_t) new Function{intern(name)};
  return cudaSuccess;
}
// streams
R(cudaStreamCreateWithPriority(cudaStream_t* p, unsigned flags, int prio)) {
  RUNTIME_CALL(cudaStreamCreateWithPriority_v5050);
  NEED_CONTEXT();
  Lock l(mu);
  auto* s = new Stream{next_stream, current_device(), flags, prio};
  next_stream += 4;
  streams[s] = s;
  *p = (cudaStream_t)s;
  return cudaSuccess;
}
R(cudaStreamCreateWithFlags(cudaStream_t* p, unsigned flags)) {
  return cudaStreamCreateWithPriority(p, flags, 0);
}
R(cudaStreamCreate(cudaStream_t* p)) {
  return cudaStreamCreateWithPriority(p, 0, 0);
}
R(cudaStreamDestroy(cudaStream_t p)) {
  RUNTIME_CALL(cudaStreamDestroy_v5050);
  Lock l(mu);
  streams.erase(p);
  return cudaSuccess;
}
R(cudaStreamGetPriority(cudaStream_t p, int* v)) {
  *v = stream_of(p)->priority;
  return cudaSuccess;
}
R(cudaStreamQuery(cudaStream_t p)) {
  RUNTIME_CALL(cudaStreamQuery_v3020);
  NEED_CONTEXT();
  return stream_of(p)->idle_at <= now() ? cudaSuccess : cudaErrorNotReady;
}
R(cudaStreamSynchronize(cudaStream_t p)) {
  RUNTIME_CALL(cudaStreamSynchronize_v3020);
  NEED_CONTEXT();
  auto* s = stream_of(p);
  if (s->capture) return fail(900);
  uint64_t a = now();
  wait_until(s->idle_at);
  record_sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, api.correlation, s->id, 0, a, now());
  return cudaSuccess;
}
static bool refuse_while_capturing();
R(cudaDeviceSynchronize()) {
  RUNTIME_CALL(cudaDeviceSynchronize_v3020);
  NEED_CONTEXT();
  if (refuse_while_capturing()) return fail(900);
  uint64_t a = now();
  wait_until(device_idle_at(current_device()));
  record_sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, api.correlation,
              CUPTI_SYNCHRONIZATION_INVALID_VALUE, 0, a, now());
  return cudaSuccess;
}
R(cudaStreamWaitEvent(cudaStream_t p, cudaEvent_t e, unsigned)) {
  RUNTIME_CALL(cudaStreamWaitEvent_v3020);
  NEED_CONTEXT();
  Lock l(mu);
  auto* s = stream_of(p);
  auto* v = (Event*)e;
  if (v->capture) {
    s->capture = v->capture;
    return cudaSuccess;
  }
  s->idle_at = std::max(s->idle_at, v->at);
  uint64_t a = now();
  record_sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, api.correlation, s->id, v->id, a, a);
  return cudaSuccess;
}
static bool refuse_while_capturing() {
  Lock l(mu);
  bool any = false;
  auto look = [&](Stream* s) {
    if (s && s->capture) {
      s->capture->invalid = true;
      any = true;
    }
  };
  for (auto* s : default_streams) look(s);
  for (auto& [h, s] : streams) look(s);
  return any;
}
static void later(Stream* s, std::function<void()> f) {
  uint64_t t = std::max(s->idle_at, now());
  std::thread([=] {
    wait_until(t);
    f();
  }).detach();
}
R(cudaLaunchHostFunc(cudaStream_t p, cudaHostFn_t f, void* u)) {
  RUNTIME_CALL(cudaLaunchHostFunc_v10000);
  NEED_CONTEXT();
  auto* s = stream_of(p);
  if (s->capture) {
    Op op;
    op.kind = Op::HOSTFN;
    op.effect = [=] { f(u); };
    enqueue(s, op, 0);
  } else
    later(s, [=] { f(u); });
  return cudaSuccess;
}
R(cudaStreamAddCallback(cudaStream_t p, cudaStreamCallback_t f, void* u, unsigned)) {
  RUNTIME_CALL(cudaStreamAddCallback_v5000);
  NEED_CONTEXT();
  later(stream_of(p), [=] { f(p, cudaSuccess, u); });
  return cudaSuccess;
}
// events
static uint32_t next_event = 1;
R(cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags)) {
  RUNTIME_CALL(cudaEventCreateWithFlags_v3020);
  NEED_CONTEXT();
  Lock l(mu);
  *e = (cudaEvent_t) new Event{next_event++, flags, current_device()};
  return cudaSuccess;
}
R(cudaEventCreate(cudaEvent_t* e)) {
  return cudaEventCreateWithFlags(e, 0);
}
R(cudaEventDestroy(cudaEvent_t e)) {
  RUNTIME_CALL(cudaEventDestroy_v3020);
  delete (Event*)e;
  return cudaSuccess;
}
R(cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t p, unsigned)) {
  RUNTIME_CALL(cudaEventRecord_v3020);
  NEED_CONTEXT();
  Lock l(mu);
  auto* v = (Event*)e;
  auto* s = stream_of(p);
  v->capture = s->capture;
  v->recorded = true;
  v->stream = s->id;
  v->at = std::max(now() + 2500, s->idle_at + 200);
  if (!s->capture && !(v->flags & cudaEventDisableTiming)) s->idle_at = std::max(s->idle_at, v->at);
  return cudaSuccess;
}
R(cudaEventRecord(cudaEvent_t e, cudaStream_t p)) {
  return cudaEventRecordWithFlags(e, p, 0);
}
R(cudaEventQuery(cudaEvent_t e)) {
  RUNTIME_CALL(cudaEventQuery_v3020);
  auto* v = (Event*)e;
  if (v->capture) {
    v->capture->invalid = true;
    return fail(900);
  }
  return !v->recorded || v->at <= now() ? cudaSuccess : cudaErrorNotReady;
}
R(cudaEventSynchronize(cudaEvent_t e)) {
  RUNTIME_CALL(cudaEventSynchronize_v3020);
  auto* v = (Event*)e;
  if (v->capture) {
    v->capture->invalid = true;
    return fail(900);
  }
  uint64_t a = now();
  if (v->recorded) wait_until(v->at);
  record_sync(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, api.correlation, v->stream, v->id, a,
              now());
  return cudaSuccess;
}
R(cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b)) {
  RUNTIME_CALL(cudaEventElapsedTime_v3020);
  auto *x = (Event*)a, *y = (Event*)b;
  if (x->capture || y->capture) return fail(400);
  if (!x->recorded || !y->recorded || ((x->flags | y->flags) & cudaEventDisableTiming)) return fail(400);
  if (x->at > now() || y->at > now()) return cudaErrorNotReady;
  *ms = ((double)y->at - (double)x->at) / 1e6;
  return cudaSuccess;
}
// graphs
static uint32_t next_graph = 1;
static std::map<void*, std::shared_ptr<Graph>>* graphs = new std::map<void*, std::shared_ptr<Graph>>;
R(cudaStreamBeginCapture(cudaStream_t p, cudaStreamCaptureMode)) {
  RUNTIME_CALL(cudaStreamBeginCapture_v10000);
  NEED_CONTEXT();
  Lock l(mu);
  auto* s = stream_of(p);
  s->capture = std::make_shared<Graph>();
  s->capture->id = next_graph++;
  s->capture_origin = true;
  return cudaSuccess;
}
R(cudaStreamEndCapture(cudaStream_t p, cudaGraph_t* g)) {
  RUNTIME_CALL(cudaStreamEndCapture_v10000);
  Lock l(mu);
  auto* s = stream_of(p);
  auto c = s->capture;
  if (!c) return fail(901);
  bool bad = c->invalid;
  for (auto& [h, o] : streams)
    if (o->capture == c) o->capture.reset();
  s->capture.reset();
  if (bad) {
    *g = nullptr;
    return fail(901);
  }
  (*graphs)[c.get()] = c;
  *g = (cudaGraph_t)c.get();
  return cudaSuccess;
}
R(cudaStreamIsCapturing(cudaStream_t p, cudaStreamCaptureStatus* v)) {
  *v = stream_of(p)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
R(cudaStreamGetCaptureInfo(cudaStream_t p, cudaStreamCaptureStatus* v, unsigned long long* id, cudaGraph_t* g,
                           const cudaGraphNode_t** deps, const cudaGraphEdgeData** ed, size_t* n)) {
  auto* s = stream_of(p);
  *v = s->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (id && s->capture) *id = s->capture->id;
  if (g && s->capture) *g = (cudaGraph_t)s->capture.get();
  if (deps) *deps = nullptr;
  if (ed) *ed = nullptr;
  if (n) *n = 0;
  return cudaSuccess;
}
R(cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* m)) {
  static thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::swap(*m, mode);
  return cudaSuccess;
}
R(cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t* nodes, size_t* n)) {
  auto* x = (Graph*)g;
  if (nodes)
    for (size_t i = 0; i < *n && i < x->ops.size(); i++) nodes[i] = (cudaGraphNode_t)(i + 1);
  *n = x->ops.size();
  return cudaSuccess;
}
R(cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long)) {
  RUNTIME_CALL(cudaGraphInstantiate_v12000);
  *e = (cudaGraphExec_t) new std::shared_ptr<Graph>((*graphs)[g]);
  return cudaSuccess;
}
R(cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long f)) {
  return cudaGraphInstantiate(e, g, f);
}
R(cudaGraphDestroy(cudaGraph_t g)) {
  Lock l(mu);
  graphs->erase(g);
  return cudaSuccess;
}
R(cudaGraphExecDestroy(cudaGraphExec_t e)) {
  delete (std::shared_ptr<Graph>*)e;
  return cudaSuccess;
}
R(cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t p)) {
  RUNTIME_CALL(cudaGraphLaunch_v10000);
  NEED_CONTEXT();
  auto g = *(std::shared_ptr<Graph>*)e;
  auto* s = stream_of(p);
  for (auto& op : g->ops)
    if (op.kind == Op::HOSTFN)
      op.effect();
    else
      enqueue(s, op, api.correlation);
  return cudaSuccess;
}
R(cudaUserObjectCreate(cudaUserObject_t* o, void*, cudaHostFn_t, unsigned, unsigned)) {
  *o = (cudaUserObject_t) new int;
  return cudaSuccess;
}
R(cudaUserObjectRelease(cudaUserObject_t, unsigned)) {
  return cudaSuccess;
}
R(cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned, unsigned)) {
  return cudaSuccess;
}
R(cudaProfilerStart()) {
  return cudaSuccess;
}
R(cudaProfilerStop()) {
  return cudaSuccess;
}

// Every function of a simulated library that is not simulated ends here. A process that has this symbol runs
// on the simulation.
EXPORT int simgpu_missing(const char* name, int code) {
  log("%s is not simulated", name);
  if (getenv("SIMGPU_SHOW_MISSING")) fprintf(stderr, "[simgpu] %s is not simulated\n", name);
  return code;
}
