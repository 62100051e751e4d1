// Per-process driver state: visible devices, contexts, forks.
#pragma once

#include <stdint.h>

#include <mutex>
#include <string>

namespace sim {

constexpr int kMaxDevices = 16;

// Guards all state of the simulator.
extern std::recursive_mutex mu;
using Lock = std::lock_guard<std::recursive_mutex>;

// Initializes the driver in this process. Returns a CUDA error code if there is no device or after a fork.
int init_driver();
// Creates a context on the current device. After an asynchronous error (errors.h), returns its code.
int init_context();
bool driver_ready();
bool has_context(int device);

int device_count();    // devices visible to the process (CUDA_VISIBLE_DEVICES)
int physical_count();  // GPUs of the machine (SIMGPU_COUNT)
int visible_to_physical(int device);
void device_uuid(int device,
                 unsigned char out[16]);  // as CUDA reports it: of the MIG instance, if there is one
int& current_device();                    // for the calling thread

// The usage that a process shares with others on the same simulated machine, for NVML and for free memory.
constexpr int kUsageBuckets = 64;
constexpr uint64_t kUsageBucketNs = 50'000'000;
struct SharedUsage {
  uint64_t used_bytes;
  uint64_t busy_ns;  // total kernel time since the process started
  struct Bucket {
    uint64_t index, busy_ns;
  } buckets[kUsageBuckets];  // busy time in the last seconds
};
SharedUsage* shared_usage(int device);  // null before the device has a context
// Prefix of the shared file in /dev/shm: simgpu.MACHINE.PID.DEVICE. MACHINE separates unrelated runs.
std::string machine_prefix();

// Keeps a device file open, as the driver does after initialization.
void hold_device_files();

bool tracing();
void log(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Returns a copy of the string that lives as long as the process. Equal strings share one copy.
const char* intern(const std::string& text);

}  // namespace sim
