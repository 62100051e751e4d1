// Work on streams: what was enqueued when, when it runs on the device, and waiting for it.
#pragma once

#include <cuda_runtime_api.h>
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
void wait_until(uint64_t time);

// One operation of a stream.
struct Op {
  enum Kind { KERNEL, MEMCPY, MEMSET, HOSTFN, EVENT } kind = KERNEL;
  const char* name = nullptr;  // lives as long as the process: see intern
  dim3 grid{1, 1, 1}, block{1, 1, 1};
  uint32_t dynamic_shared = 0, registers = 32, static_shared = 0;
  uint64_t duration_ns = 2000, bytes = 0;
  uint8_t copy_kind = 0, source_kind = 0, target_kind = 0;  // as CUPTI numbers them
  uint32_t value = 0;                                       // of a memset
  uint32_t graph = 0;
  uint64_t node = 0;
  std::function<void()> effect;
};

struct Graph {
  uint32_t id;
  std::vector<Op> ops;
  bool invalid = false;
};

struct Stream {
  uint32_t id;
  int device;
  unsigned flags;
  int priority;
  uint64_t idle_at = 0;
  std::deque<uint64_t> pending;
  std::shared_ptr<Graph> capture;
  bool capture_origin = false;
};

struct Event {
  uint32_t id;
  unsigned flags;
  int device = 0;
  bool recorded = false;
  uint64_t at = 0;
  uint32_t stream = 0;
  std::shared_ptr<Graph> capture;
};

Stream* stream_of(void* handle);
void enqueue(Stream* stream, Op op, uint32_t correlation);
uint64_t device_idle_at(int device);

// A kernel that a library launches under a name of its own. The launch appears as a call of the runtime API:
// cudaLaunchKernel unless `callback_id` names another.
void launch_named(void* stream, const char* name, uint64_t duration_ns, dim3 grid, dim3 block,
                  uint32_t callback_id = 0);
// The same with all that CUPTI reports of a kernel (registers, shared memory, …).
void launch_op(void* stream, Op op, uint32_t callback_id = 0);

}  // namespace sim
