// Work on streams: what was enqueued when, when it runs on the device, and waiting for it.
//
// Nothing runs: an operation's start and end are computed when it is enqueued, from what is before it on its
// stream. Where that is not known yet (a host function, a collective that waits for other ranks), the
// computation itself waits: see Moment.
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

// A point on the device's time line: when something ends, known or not yet.
struct Moment {
  bool known = false;
  uint64_t at = 0;
  std::vector<std::function<void(uint64_t)>> waiting;
};
using MomentPtr = std::shared_ptr<Moment>;

MomentPtr resolved(uint64_t at);
MomentPtr unresolved();
// All under mu:
void resolve(const MomentPtr& moment, uint64_t at);
void when_known(const MomentPtr& moment, std::function<void(uint64_t at)> then);
MomentPtr join(const std::vector<MomentPtr>& moments);  // the latest of them
bool reached(const MomentPtr& moment);
// The calling thread waits. Not under mu.
void wait_for(const MomentPtr& moment);

// Waits for large effects that are under way. Whatever reads, frees or reuses memory comes after this.
void finish_effects();

// One operation of a stream.
struct Op {
  enum Kind { KERNEL, MEMCPY, MEMSET, HOST_FUNCTION, EMPTY } kind = KERNEL;
  const char* name = nullptr;  // lives as long as the process: see intern
  dim3 grid{1, 1, 1}, block{1, 1, 1};
  uint32_t dynamic_shared = 0, registers = 32, static_shared = 0;
  uint64_t duration_ns = 2000, bytes = 0;
  uint8_t copy_kind = 0, source_kind = 0, target_kind = 0;  // as CUPTI numbers them
  uint32_t value = 0;                                       // of a memset
  uint32_t graph = 0;                                       // of a kernel in a graph
  uint64_t node = 0;
  std::function<void()> effect;  // what the operation does to memory
  bool large_effect = false;     // it takes long, and the call that enqueues it does not wait for it
  // A kernel whose end depends on more than this process. Called under mu once it is known when the kernel
  // can start; has to resolve `end`, then or later. A graph calls it at each launch.
  std::function<void(uint64_t start, MomentPtr end)> collective;
};

struct Capture;

struct Stream {
  uint32_t id;
  int device;
  unsigned flags;
  int priority;
  MomentPtr tail = resolved(0);   // the end of what was enqueued last
  uint64_t busy_since = 0;        // start of the work that keeps it busy without a pause
  double occupied = 0;            // share of the device that its last kernel fills
  std::deque<MomentPtr> pending;  // ends of what is in the queue
  // Of a stream that is being captured: the nodes that its next operation depends on.
  std::shared_ptr<Capture> capture;
  std::vector<size_t> capture_tail;
  std::vector<void*> capture_tail_handles;  // what cudaStreamGetCaptureInfo points at
};

struct Event {
  uint32_t id;
  unsigned flags;
  int device = 0;
  bool recorded = false;
  MomentPtr at = resolved(0);
  uint32_t stream = 0;
  // Recorded in a stream that was being captured.
  std::shared_ptr<Capture> capture;
  std::vector<size_t> capture_tail;
};

// The stream of a handle, where null is the legacy default stream of the current device; null for an unknown
// handle.
Stream* stream_of(void* handle);
Stream* create_stream(unsigned flags, int priority);
bool destroy_stream(void* handle);
std::vector<Stream*> streams_of_device(int device);

// Appends to the stream, or to the graph where it is being captured. Returns a CUDA error code.
int enqueue(Stream* stream, Op op, uint32_t correlation);
// Computes start and end of an operation that can start at `ready`; resolves the moment that it returns.
MomentPtr place(const Op& op, Stream* stream, uint32_t stream_id, uint32_t correlation,
                const MomentPtr& before, uint64_t not_before, uint64_t gap_ns);
// What the stream's next operation has to wait for: its own work, and by the rules of the legacy default
// stream.
MomentPtr stream_turn(Stream* stream);
void extend_tail(Stream* stream, const MomentPtr& end);
MomentPtr device_idle(int device);

// How long a call that hands work to the device keeps the host: see kLaunchHostNs in timeline.cpp.
uint64_t launch_host_ns();

// A kernel that a library launches under a name of its own. The launch appears as a call of the runtime API:
// cudaLaunchKernel unless `callback_id` names another. Returns a CUDA error code.
int launch_named(void* stream, const char* name, uint64_t duration_ns, dim3 grid, dim3 block,
                 uint32_t callback_id = 0);
// The same with all that CUPTI reports of a kernel (registers, shared memory, …).
int launch_op(void* stream, Op op, uint32_t callback_id = 0);

}  // namespace sim
