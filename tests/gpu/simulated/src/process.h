// The process's use of the driver: devices that it sees, contexts, forks.
#pragma once

#include <stdint.h>

#include <mutex>
#include <string>

namespace sim {

constexpr int kMaxDevices = 16;

// Guards everything that the simulation knows.
extern std::recursive_mutex mu;
using Lock = std::lock_guard<std::recursive_mutex>;

// Starts the process's use of the driver; a CUDA error code where there is no device or after a fork.
int init_driver();
// Creates a context on the current device. After an asynchronous error (errors.h), its code.
int init_context();
bool driver_ready();
bool has_context(int device);

int device_count();    // that the process sees (CUDA_VISIBLE_DEVICES)
int physical_count();  // GPUs of the machine (SIMGPU_COUNT)
int visible_to_physical(int device);
void device_uuid(int device,
                 unsigned char out[16]);  // as CUDA gives it: of the MIG instance, where there is one
int& current_device();                    // of the calling thread

// What a process shares with the others of the same simulated machine, for NVML and for free memory.
constexpr int kUsageBuckets = 64;
constexpr uint64_t kUsageBucketNs = 50'000'000;
struct SharedUsage {
  uint64_t used_bytes;
  uint64_t busy_ns;  // of kernels, since the process started
  struct Bucket {
    uint64_t index, busy_ns;
  } buckets[kUsageBuckets];  // busy time in the last seconds
};
SharedUsage* shared_usage(int device);  // null before the device has a context
// The file's name in /dev/shm: simgpu.MACHINE.PID.DEVICE. MACHINE tells apart runs that know nothing of each
// other.
std::string machine_prefix();

// Keeps a device file open, as the driver does once it is initialized.
void hold_device_files();

bool tracing();
void log(const char* format, ...) __attribute__((format(printf, 1, 2)));

// A copy of the string that lives as long as the process; one for equal strings.
const char* intern(const std::string& text);

}  // namespace sim
