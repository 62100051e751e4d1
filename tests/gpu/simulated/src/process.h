// The process's use of the driver: devices that it sees, contexts, forks.
#pragma once

#include <mutex>
#include <string>

namespace sim {

// Guards everything that the simulation knows.
extern std::recursive_mutex mu;
using Lock = std::lock_guard<std::recursive_mutex>;

// Starts the process's use of the driver; a CUDA error code where there is no device or after a fork.
int init_driver();
// Creates a context on the current device.
int init_context();
bool driver_ready();

int device_count();    // that the process sees (CUDA_VISIBLE_DEVICES)
int physical_count();  // on the machine (SIMGPU_COUNT)
int visible_to_physical(int device);
int& current_device();  // of the calling thread

// Keeps a device file open, as the driver does once it is initialized.
void hold_device_files();

bool tracing();
void log(const char* format, ...) __attribute__((format(printf, 1, 2)));

// A copy of the string that lives as long as the process; one for equal strings.
const char* intern(const std::string& text);

}  // namespace sim
