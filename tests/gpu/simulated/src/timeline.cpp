#include "timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <thread>
#include <unordered_set>

#include "capture.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "process.h"

namespace sim {

namespace {

// Latency from the return of a launch to the kernel's start on an idle GPU, and between consecutive kernels
// of a busy stream. Both come from A100 and H100 traces. Graph nodes follow each other faster.
constexpr uint64_t kStartLatencyNs = 2'200;
constexpr uint64_t kKernelGapNs = 700;
// Host time of a launch, 3 to 6 µs: as measured in NVIDIA's "Getting Started with CUDA Graphs" and seen in
// traces.
constexpr uint64_t kLaunchHostNs = 3'300;
constexpr uint64_t kLaunchJitterNs = 1'400;
// The hardware queue of a stream holds this many launches. The next launch blocks the host.
constexpr size_t kQueueDepth = 1024;

std::condition_variable_any& future_resolved() {
  static auto* condition = new std::condition_variable_any;
  return *condition;
}

std::unordered_set<void*>& live_streams() {
  static auto* streams = new std::unordered_set<void*>;
  return *streams;
}
Stream* legacy_streams[kMaxDevices];
uint32_t next_stream_id = 13;

// A copy engine runs one copy at a time, in the order in which they become ready. Its busy intervals are kept
// sorted.
struct CopyEngine {
  std::deque<std::pair<uint64_t, uint64_t>> busy;

  uint64_t reserve(uint64_t ready, uint64_t duration) {
    uint64_t past = now();
    while (!busy.empty() && busy.front().second + 1'000'000 < past) busy.pop_front();
    uint64_t start = ready;
    auto at = busy.begin();
    for (; at != busy.end(); ++at) {
      if (start + duration <= at->first) break;
      start = std::max(start, at->second);
    }
    busy.insert(at, {start, start + duration});
    return start;
  }
};
CopyEngine copy_engines[kMaxDevices][2];

// Kernels of different streams share the device. A new kernel is stretched to fit what the running ones leave
// free. Those keep their times, which were already reported.
uint64_t contended_duration(const Op& op, Stream* stream, uint64_t start, double fraction) {
  double stretched = (double)op.duration_ns;
  for (Stream* other : streams_of_device(stream->device)) {
    if (other == stream || !other->tail->known || other->tail->at <= start) continue;
    uint64_t from = std::max(start, other->busy_since),
             to = std::min(start + op.duration_ns, other->tail->at);
    if (to > from)
      stretched += (double)(to - from) * std::max(0., std::min(1., fraction + other->occupied - 1));
  }
  return (uint64_t)stretched;
}

double device_fraction(const Op& op) {
  double threads = (double)op.grid.x * op.grid.y * op.grid.z * op.block.x * op.block.y * op.block.z;
  // Half of the maximum resident threads is enough to keep an SM busy.
  return std::min(1., threads / (model().multiprocessors * (model().threads_per_sm / 2.)));
}

void add_busy_time(int device, uint64_t start, uint64_t end) {
  SharedUsage* usage = shared_usage(device);
  if (!usage) return;
  usage->busy_ns += end - start;
  for (uint64_t at = start; at < end;) {
    uint64_t index = at / kUsageBucketNs, next = std::min(end, (index + 1) * kUsageBucketNs);
    auto& bucket = usage->buckets[index % kUsageBuckets];
    if (bucket.index != index) bucket = {index, 0};
    bucket.busy_ns += next - at;
    at = next;
  }
}

// SIMGPU_FAIL_KERNEL=SUBSTRING[:NTH] and SIMGPU_ASSERT_KERNEL=SUBSTRING[:NTH]: the NTH launch of a kernel
// whose name contains SUBSTRING makes an illegal memory access, or fails an assertion.
struct InjectedFailure {
  std::string substring;
  int nth = 1;
  explicit InjectedFailure(const char* variable) {
    const char* value = getenv(variable);
    if (!value) return;
    substring = value;
    size_t colon = substring.rfind(':');
    if (colon != std::string::npos && colon + 1 < substring.size() &&
        strspn(substring.c_str() + colon + 1, "0123456789") == substring.size() - colon - 1) {
      nth = atoi(substring.c_str() + colon + 1);
      substring.resize(colon);
    }
  }
  bool triggers(const char* name) {
    return !substring.empty() && name && strstr(name, substring.c_str()) && --nth == 0;
  }
};

// The assertion messages of PyTorch's kernels (aten/src/ATen/native/cuda). File paths are those of the build
// machine.
const char* assertion_of(const char* kernel) {
  static const struct {
    const char *substring, *message;
  } known[] = {
      {"indexSelect",
       "Indexing.cu:1553: indexSelectSmallIndex: block: [0,0,0], thread: [0,0,0] Assertion `srcIndex < "
       "srcSelectDimSize` failed."},
      {"nll_loss",
       "Loss.cu:245: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [0,0,0] Assertion `t "
       ">= 0 && t < n_classes` failed."},
      {"scatter_gather",
       "ScatterGatherKernel.cu:163: operator(): block: [0,0,0], thread: [0,0,0] Assertion `idx_dim "
       ">= 0 && idx_dim < index_size && \"index out of bounds\"` failed."},
      {"index",
       "IndexKernel.cu:92: operator(): block: [0,0,0], thread: [0,0,0] Assertion `-sizes[i] <= index && "
       "index "
       "< sizes[i] && \"index out of bounds\"` failed."},
  };
  for (const auto& each : known)
    if (strstr(kernel, each.substring))
      return intern(std::string("/pytorch/aten/src/ATen/native/cuda/") + each.message);
  return intern(std::string(kernel) + ": block: [0,0,0], thread: [0,0,0] Assertion failed.");
}

void inject_failures(const Op& op, uint64_t end) {
  static auto* memory_fault = new InjectedFailure("SIMGPU_FAIL_KERNEL");
  static auto* assertion = new InjectedFailure("SIMGPU_ASSERT_KERNEL");
  if (memory_fault->triggers(op.name)) fail_asynchronously(cudaErrorIllegalAddress, end);
  if (assertion->triggers(op.name)) fail_asynchronously(cudaErrorAssert, end, assertion_of(op.name));
}

// Performs large asynchronous copies on a separate thread, because a real copy does not block the host
// either. They run in order, and finish before anything reads the memory (see finish_effects).
class LargeEffects {
 public:
  void add(std::function<void()> effect) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!running_) {
      running_ = true;
      std::thread([this] { work(); }).detach();
    }
    queue_.push_back(std::move(effect));
    changed_.notify_all();
  }
  void finish() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty(); });
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !queue_.empty(); });
      lock.unlock();
      queue_.front()();  // deque elements do not move when others are appended
      lock.lock();
      queue_.pop_front();
      changed_.notify_all();
    }
  }
  bool running_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
};

LargeEffects& large_effects() {
  static auto* effects = new LargeEffects;
  return *effects;
}

// Runs host functions in order on a separate thread, as the driver does.
class HostFunctions {
 public:
  void add(uint64_t at, std::function<void()> function, FutureTimePtr end) {
    if (!running_) {
      running_ = true;
      std::thread([this] { work(); }).detach();
    }
    queue_.push_back({at, std::move(function), std::move(end)});
    added_.notify_one();
  }

 private:
  struct Item {
    uint64_t at;
    std::function<void()> function;
    FutureTimePtr end;
  };
  void work() {
    for (;;) {
      Item item;
      {
        std::unique_lock<std::recursive_mutex> lock(mu);
        added_.wait(lock, [this] { return !queue_.empty(); });
        auto first =
            std::min_element(queue_.begin(), queue_.end(), [](auto& a, auto& b) { return a.at < b.at; });
        item = std::move(*first);
        queue_.erase(first);
      }
      wait_until(item.at);
      finish_effects();
      item.function();
      Lock lock(mu);
      resolve(item.end, std::max(item.at, now()));
    }
  }
  bool running_ = false;
  std::deque<Item> queue_;
  std::condition_variable_any added_;
};

HostFunctions& host_functions() {
  static auto* functions = new HostFunctions;
  return *functions;
}

void finish(const Op& op, int device, uint32_t stream_id, uint32_t correlation, uint64_t start,
            uint64_t end) {
  if (op.effect && op.large_effect) {
    large_effects().add(op.effect);
  } else if (op.effect) {
    finish_effects();
    op.effect();
  }
  if (op.kind == Op::KERNEL) add_busy_time(device, start, end);
  record_op(op, device, stream_id, correlation, start, end);
}

void schedule_at(const Op& op, Stream* stream, uint32_t stream_id, uint32_t correlation, uint64_t start,
                 const FutureTimePtr& end) {
  if (failed_before(start)) return resolve(end, start);
  switch (op.kind) {
    case Op::EMPTY:
      return resolve(end, start);
    case Op::HOST_FUNCTION:
      return host_functions().add(start, op.effect, end);
    case Op::KERNEL: {
      inject_failures(op, start + op.duration_ns);
      if (op.collective) {
        finish_effects();
        when_known(end, [=, device = stream->device](uint64_t at) {
          finish(op, device, stream_id, correlation, start, at);
        });
        return op.collective(start, end);
      }
      double fraction = device_fraction(op);
      uint64_t duration = contended_duration(op, stream, start, fraction);
      if (!stream->tail->known || stream->tail->at + 20'000 < start) stream->busy_since = start;
      stream->occupied = fraction;
      finish(op, stream->device, stream_id, correlation, start, start + duration);
      return resolve(end, start + duration);
    }
    case Op::MEMCPY: {
      // Host-to-device and device-to-host copies each have their own engine, separate from the SMs.
      int engine = op.copy_kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? 0
                   : op.copy_kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? 1
                                                                     : -1;
      if (engine >= 0) start = copy_engines[stream->device][engine].reserve(start, op.duration_ns);
      break;
    }
    case Op::MEMSET:
      break;
  }
  uint64_t at = start + op.duration_ns;
  finish(op, stream->device, stream_id, correlation, start, at);
  resolve(end, at);
}

}  // namespace

void finish_effects() {
  if (driver_ready()) large_effects().finish();
}

void spin_until(uint64_t time) {
  while (now() < time) {
  }
}

void wait_until(uint64_t time) {
  for (;;) {
    uint64_t t = now();
    if (t >= time) return;
    if (time - t < 80'000) continue;
    uint64_t rest = time - t - 60'000;
    timespec pause{(time_t)(rest / 1'000'000'000), (long)(rest % 1'000'000'000)};
    nanosleep(&pause, nullptr);
  }
}

FutureTimePtr resolved(uint64_t at) {
  auto future = std::make_shared<FutureTime>();
  future->known = true;
  future->at = at;
  return future;
}

FutureTimePtr unresolved() {
  return std::make_shared<FutureTime>();
}

void resolve(const FutureTimePtr& future, uint64_t at) {
  Lock lock(mu);
  if (future->known) return;
  future->known = true;
  future->at = at;
  if (future->waiting.empty()) return;
  auto waiting = std::move(future->waiting);
  for (auto& then : waiting) then(at);
  future_resolved().notify_all();
}

void when_known(const FutureTimePtr& future, std::function<void(uint64_t)> then) {
  if (future->known)
    then(future->at);
  else
    future->waiting.push_back(std::move(then));
}

FutureTimePtr join(const std::vector<FutureTimePtr>& futures) {
  uint64_t latest = 0;
  std::vector<FutureTimePtr> pending;
  for (const FutureTimePtr& each : futures) {
    if (each->known)
      latest = std::max(latest, each->at);
    else if (std::find(pending.begin(), pending.end(), each) == pending.end())
      pending.push_back(each);
  }
  if (pending.empty()) return resolved(latest);
  if (pending.size() == 1 && latest == 0) return pending[0];
  auto joined = unresolved();
  auto remaining = std::make_shared<size_t>(pending.size());
  auto maximum = std::make_shared<uint64_t>(latest);
  for (const FutureTimePtr& each : pending)
    when_known(each, [joined, remaining, maximum](uint64_t at) {
      *maximum = std::max(*maximum, at);
      if (--*remaining == 0) resolve(joined, *maximum);
    });
  return joined;
}

bool reached(const FutureTimePtr& future) {
  {
    Lock lock(mu);
    if (!future->known || future->at > now()) return false;
  }
  finish_effects();
  return true;
}

void wait_for(const FutureTimePtr& future) {
  {
    std::unique_lock<std::recursive_mutex> lock(mu);
    if (!future->known) {
      // Makes resolve() notify even if nothing else waits for this.
      future->waiting.push_back([](uint64_t) {});
      future_resolved().wait(lock, [&] { return future->known; });
    }
  }
  wait_until(future->at);
  finish_effects();
}

Stream* stream_of(void* handle) {
  Lock lock(mu);
  static thread_local Stream* per_thread[kMaxDevices];
  int device = current_device();
  if (handle == nullptr || handle == cudaStreamLegacy) {
    Stream*& stream = legacy_streams[device];
    if (!stream) stream = new Stream{7, device, 0, 0};
    return stream;
  }
  if (handle == cudaStreamPerThread) {
    if (!per_thread[device]) {
      per_thread[device] = create_stream(0, 0);
      per_thread[device]->device = device;
    }
    return per_thread[device];
  }
  return live_streams().count(handle) ? (Stream*)handle : nullptr;
}

Stream* create_stream(unsigned flags, int priority) {
  Lock lock(mu);
  auto* stream = new Stream{next_stream_id, current_device(), flags, priority};
  next_stream_id += 4;
  live_streams().insert(stream);
  return stream;
}

bool destroy_stream(void* handle) {
  Lock lock(mu);
  // The object is not freed: pending work is not waited for, and events and captures may still point to it.
  return live_streams().erase(handle) == 1;
}

std::vector<Stream*> streams_of_device(int device) {
  Lock lock(mu);
  std::vector<Stream*> found;
  if (legacy_streams[device]) found.push_back(legacy_streams[device]);
  for (void* each : live_streams())
    if (((Stream*)each)->device == device) found.push_back((Stream*)each);
  return found;
}

// CUDA Runtime API, "Stream synchronization behavior": work on the legacy stream and work on blocking streams
// of the device wait for each other. Streams created with cudaStreamNonBlocking, such as PyTorch's, are
// exempt.
FutureTimePtr stream_ready_time(Stream* stream) {
  Stream* legacy = legacy_streams[stream->device];
  if (stream != legacy) {
    if ((stream->flags & cudaStreamNonBlocking) || !legacy) return stream->tail;
    return join({stream->tail, legacy->tail});
  }
  std::vector<FutureTimePtr> tails{stream->tail};
  for (void* each : live_streams()) {
    auto* other = (Stream*)each;
    if (other->device == stream->device && !(other->flags & cudaStreamNonBlocking))
      tails.push_back(other->tail);
  }
  return tails.size() == 1 ? stream->tail : join(tails);
}

void extend_tail(Stream* stream, const FutureTimePtr& end) {
  stream->tail = end;
  stream->pending.push_back(end);
}

FutureTimePtr device_idle(int device) {
  Lock lock(mu);
  std::vector<FutureTimePtr> tails;
  for (Stream* stream : streams_of_device(device)) tails.push_back(stream->tail);
  return join(tails);
}

FutureTimePtr schedule(const Op& op, Stream* stream, uint32_t stream_id, uint32_t correlation,
                       const FutureTimePtr& before, uint64_t not_before, uint64_t gap_ns) {
  auto end = unresolved();
  if (before->known)
    schedule_at(op, stream, stream_id, correlation, std::max(not_before, before->at + gap_ns), end);
  else
    when_known(before, [=](uint64_t at) {
      schedule_at(op, stream, stream_id, correlation, std::max(not_before, at + gap_ns), end);
    });
  return end;
}

int enqueue(Stream* stream, Op op, uint32_t correlation) {
  FutureTimePtr full;
  {
    Lock lock(mu);
    if (stream->capture) return capture_op(stream, std::move(op));
    if (int error = reject_legacy_use(stream)) return error;
    uint64_t time = now();
    while (!stream->pending.empty() && stream->pending.front()->known && stream->pending.front()->at <= time)
      stream->pending.pop_front();
    if (stream->pending.size() >= kQueueDepth) full = stream->pending.front();
  }
  if (full) wait_for(full);
  Lock lock(mu);
  uint64_t gap = op.kind == Op::EMPTY || op.kind == Op::HOST_FUNCTION ? 0 : kKernelGapNs;
  extend_tail(stream, schedule(op, stream, stream->id, correlation, stream_ready_time(stream),
                               now() + kStartLatencyNs, gap));
  return 0;
}

uint64_t launch_host_ns() {
  static const double fixed = [] {
    const char* microseconds = getenv("SIMGPU_LAUNCH_US");
    return microseconds ? atof(microseconds) : -1;
  }();
  if (fixed >= 0) return (uint64_t)(fixed * 1000);
  // Varies like real launch times, but deterministically.
  static std::atomic<uint32_t> launches{0};
  uint32_t mixed = (launches++ * 2654435761u) >> 16;
  uint64_t cost = kLaunchHostNs + mixed % kLaunchJitterNs;
  return mixed % 61 == 0 ? cost + kLaunchJitterNs : cost;
}

int launch_op(void* handle, Op op, uint32_t callback_id) {
  uint64_t entered = now();
  Api api(CUPTI_CB_DOMAIN_RUNTIME_API,
          callback_id ? callback_id : (uint32_t)CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
  if (int error = init_context()) return fail(error);
  Stream* stream = stream_of(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  spin_until(entered + launch_host_ns());
  return fail(enqueue(stream, std::move(op), api.correlation));
}

int launch_named(void* stream, const char* name, uint64_t duration_ns, dim3 grid, dim3 block,
                 uint32_t callback_id) {
  Op op;
  op.name = name;
  op.grid = grid;
  op.block = block;
  op.duration_ns = duration_ns;
  op.registers = 128;
  return launch_op(stream, std::move(op), callback_id);
}

}  // namespace sim
