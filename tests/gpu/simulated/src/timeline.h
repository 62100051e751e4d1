// Streams: when work was enqueued, when it runs on the device, and waiting for it.
//
// Nothing is executed. The start and end of an operation are computed when it is enqueued, from the work
// before it on its stream. If that is not known yet (a host function, or a collective that waits for other
// ranks), the computation is deferred (see FutureTime).
#pragma once

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace sim {

// Nanoseconds of CLOCK_MONOTONIC.
inline uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
void wait_until(uint64_t time);  // sleeps, then spins
void spin_until(uint64_t time);

// A time on the device's timeline, such as the end of an operation, which may not be known yet.
struct FutureTime {
  bool known = false;
  uint64_t at = 0;
  std::vector<std::function<void(uint64_t)>> waiting;
};
using FutureTimePtr = std::shared_ptr<FutureTime>;

FutureTimePtr resolved(uint64_t at);
FutureTimePtr unresolved();
// These are called with `mu` held.
void resolve(const FutureTimePtr& future, uint64_t at);
void when_known(const FutureTimePtr& future, std::function<void(uint64_t at)> then);
FutureTimePtr join(const std::vector<FutureTimePtr>& futures);  // the latest of them
bool reached(const FutureTimePtr& future);
// Blocks the calling thread. Must not be called with `mu` held.
void wait_for(const FutureTimePtr& future);

// Waits for large effects in progress. Call it before reading, freeing or reusing device memory.
void finish_effects();

// An operation on a stream.
struct Op {
  enum Kind { KERNEL, MEMCPY, MEMSET, HOST_FUNCTION, EMPTY } kind = KERNEL;
  const char* name = nullptr;  // lives as long as the process (see intern)
  dim3 grid{1, 1, 1}, block{1, 1, 1};
  uint32_t dynamic_shared = 0, registers = 32, static_shared = 0;
  uint64_t duration_ns = 2000, bytes = 0;
  uint8_t copy_kind = 0, source_kind = 0, target_kind = 0;  // CUPTI's constants
  uint32_t value = 0;                                       // for a memset
  uint32_t graph = 0;                                       // for a kernel in a graph
  uint64_t node = 0;
  std::function<void()> effect;  // the operation's effect on memory
  bool large_effect = false;     // slow: the enqueuing call does not wait for it
  // For a kernel whose end depends on other processes. Called with `mu` held once the kernel's start is
  // known; must resolve `end`, immediately or later. A graph calls it on every launch.
  std::function<void(uint64_t start, FutureTimePtr end)> collective;
};

struct Capture;

struct Stream {
  uint32_t id;
  int device;
  unsigned flags;
  int priority;
  FutureTimePtr tail = resolved(0);   // the end of the last enqueued operation
  uint64_t busy_since = 0;            // start of the current period without idle time
  double occupied = 0;                // fraction of the device that its last kernel fills
  std::deque<FutureTimePtr> pending;  // ends of the operations in the queue
  // While the stream is capturing: the nodes on which its next operation depends.
  std::shared_ptr<Capture> capture;
  std::vector<size_t> capture_tail;
  std::vector<void*> capture_tail_handles;  // storage for the array that cudaStreamGetCaptureInfo returns
};

struct Event {
  uint32_t id;
  unsigned flags;
  int device = 0;
  bool recorded = false;
  FutureTimePtr at = resolved(0);
  uint32_t stream = 0;
  // Set if the event was recorded in a capturing stream.
  std::shared_ptr<Capture> capture;
  std::vector<size_t> capture_tail;
};

// The stream of a handle, or null for an unknown handle. A null handle is the legacy default stream of the
// current device.
Stream* stream_of(void* handle);
Stream* create_stream(unsigned flags, int priority);
bool destroy_stream(void* handle);
std::vector<Stream*> streams_of_device(int device);

// Appends to the stream, or to its graph if the stream is capturing. Returns a CUDA error code.
int enqueue(Stream* stream, Op op, uint32_t correlation);
// Computes the start and end of an operation that can start at `ready`. Resolves the returned time.
FutureTimePtr schedule(const Op& op, Stream* stream, uint32_t stream_id, uint32_t correlation,
                       const FutureTimePtr& before, uint64_t not_before, uint64_t gap_ns);
// What the stream's next operation waits for: earlier work of the stream, and work required by the legacy
// default stream rules.
FutureTimePtr stream_ready_time(Stream* stream);
void extend_tail(Stream* stream, const FutureTimePtr& end);
FutureTimePtr device_idle(int device);

// Host time of a call that submits work to the device: see kLaunchHostNs in timeline.cpp.
uint64_t launch_host_ns();

// Launches a library kernel under its own name. In a trace, the launch appears as the runtime call
// cudaLaunchKernel unless `callback_id` names another. Returns a CUDA error code.
int launch_named(void* stream, const char* name, uint64_t duration_ns, dim3 grid, dim3 block,
                 uint32_t callback_id = 0);
// The same, with all fields that CUPTI reports for a kernel (registers, shared memory, …).
int launch_op(void* stream, Op op, uint32_t callback_id = 0);

}  // namespace sim
