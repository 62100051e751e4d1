#include "process.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <set>
#include <vector>

#include "device_model.h"
#include "errors.h"

namespace sim {

std::recursive_mutex mu;

namespace {

struct VisibleDevice {
  int physical;
  int mig_instance;  // -1 for a whole GPU
};

std::vector<VisibleDevice>& visible_devices() {
  static auto* devices = new std::vector<VisibleDevice>;
  return *devices;
}
bool initialized = false;
bool forked_after_init = false;
SharedUsage* usages[kMaxDevices];

// CUDA C++ Programming Guide, "CUDA Environment Variables": indices or UUIDs, where any unambiguous prefix of
// a UUID is accepted. Only devices before the first invalid entry are visible. A duplicate device makes the
// whole list invalid.
std::vector<VisibleDevice> find_visible_devices() {
  std::vector<VisibleDevice> all, visible;
  for (int i = 0; i < physical_count(); i++) all.push_back({i, mig_mode() ? 0 : -1});
  const char* variable = getenv("CUDA_VISIBLE_DEVICES");
  if (!variable) {
    // With MIG, CUDA enumerates only one instance: MIG User Guide, "CUDA Device Enumeration".
    if (mig_mode()) all.resize(1);
    return all;
  }
  std::string list = variable;
  for (size_t at = 0; at < list.size();) {
    size_t comma = list.find(',', at);
    if (comma == std::string::npos) comma = list.size();
    std::string entry = list.substr(at, comma - at);
    at = comma + 1;
    while (!entry.empty() && entry.front() == ' ') entry.erase(0, 1);
    while (!entry.empty() && entry.back() == ' ') entry.pop_back();

    std::vector<VisibleDevice> matches;
    unsigned char uuid[16];
    for (const VisibleDevice& device : all) {
      if (entry.rfind("GPU-", 0) == 0) {
        uuid_of(device.physical, uuid);
        if (uuid_text("GPU-", uuid).compare(0, entry.size(), entry) == 0) matches.push_back(device);
      } else if (entry.rfind("MIG-", 0) == 0 && mig_mode()) {
        for (int instance = 0; instance < 2; instance++) {
          mig_uuid_of(device.physical, instance, uuid);
          if (uuid_text("MIG-", uuid).compare(0, entry.size(), entry) == 0)
            matches.push_back({device.physical, instance});
        }
      }
    }
    char* end;
    long index = strtol(entry.c_str(), &end, 10);
    if (end != entry.c_str() && *end == 0 && index >= 0 && index < (long)all.size())
      matches.push_back(all[index]);
    if (matches.size() != 1) break;
    for (const VisibleDevice& before : visible)
      if (before.physical == matches[0].physical && before.mig_instance == matches[0].mig_instance) return {};
    visible.push_back(matches[0]);
    if (mig_mode()) break;
  }
  return visible;
}

std::string usage_file(int device) {
  return machine_prefix() + std::to_string(getpid()) + "." + std::to_string(visible_to_physical(device));
}

void remove_usage_files() {
  if (forked_after_init) return;  // the files belong to the parent
  for (int i = 0; i < kMaxDevices; i++)
    if (usages[i]) unlink(("/dev/shm/" + usage_file(i)).c_str());
}

SharedUsage* create_usage(int device) {
  int fd = open(("/dev/shm/" + usage_file(device)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  void* mapped = MAP_FAILED;
  if (ftruncate(fd, sizeof(SharedUsage)) == 0)
    mapped = mmap(nullptr, sizeof(SharedUsage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return nullptr;
  static bool registered = false;
  if (!registered) registered = atexit(remove_usage_files) == 0;
  auto* usage = (SharedUsage*)mapped;
  usage->used_bytes = context_bytes();
  return usage;
}

// The real driver starts threads of its own. Programs that fork or count threads must cope with them.
void start_driver_thread() {
  static bool started = false;
  if (started || getenv("SIMGPU_NO_THREAD")) return;
  started = true;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  auto body = [](void*) -> void* {
    pthread_setname_np(pthread_self(), "cuda-EvtHandlr");
    for (;;) pause();
    return nullptr;
  };
  if (pthread_create(&thread, nullptr, body, nullptr) == 0) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void before_fork() {
  mu.lock();
}
void after_fork_in_parent() {
  mu.unlock();
}
void after_fork_in_child() {
  new (&mu) std::recursive_mutex;  // the owning thread has a different id in the child
  if (initialized) forked_after_init = true;
}

}  // namespace

int physical_count() {
  static const int count = [] {
    const char* value = getenv("SIMGPU_COUNT");
    int n = value ? atoi(value) : 1;
    return n < 0 ? 0 : n > kMaxDevices ? kMaxDevices : n;
  }();
  return count;
}

int init_driver() {
  Lock lock(mu);
  if (forked_after_init) return cudaErrorInitializationError;
  if (initialized) return 0;
  visible_devices() = find_visible_devices();
  if (visible_devices().empty()) return cudaErrorNoDevice;
  initialized = true;
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  hold_device_files();
  log("driver initialized, %zu devices", visible_devices().size());
  return 0;
}

bool driver_ready() {
  return initialized && !forked_after_init;
}
bool has_context(int device) {
  return usages[device] != nullptr;
}
int device_count() {
  return (int)visible_devices().size();
}

int visible_to_physical(int device) {
  return device >= 0 && device < device_count() ? visible_devices()[device].physical : device;
}

void device_uuid(int device, unsigned char out[16]) {
  int instance = device >= 0 && device < device_count() ? visible_devices()[device].mig_instance : -1;
  if (instance >= 0)
    mig_uuid_of(visible_to_physical(device), instance, out);
  else
    uuid_of(visible_to_physical(device), out);
}

int& current_device() {
  static thread_local int device = 0;
  return device;
}

int init_context() {
  if (int error = init_driver()) return error;
  int device = current_device();
  if (!usages[device]) {
    Lock lock(mu);
    if (!usages[device]) {
      if (const char* milliseconds = getenv("SIMGPU_CONTEXT_MS")) usleep(atoi(milliseconds) * 1000);
      static SharedUsage fallback[kMaxDevices];
      SharedUsage* created = create_usage(device);
      usages[device] = created ? created : &fallback[device];
      log("context created on device %d", device);
      start_driver_thread();
    }
  }
  return sticky_error();
}

SharedUsage* shared_usage(int device) {
  return usages[device];
}

std::string machine_prefix() {
  const char* machine = getenv("SIMGPU_MACHINE");
  return std::string("simgpu.") + (machine ? machine : "0") + ".";
}

bool tracing() {
  static const bool on = getenv("SIMGPU_TRACE") != nullptr;
  return on;
}

void log(const char* format, ...) {
  if (!tracing()) return;
  static const int fd = [] {
    const char* file = getenv("SIMGPU_TRACE");
    return file[0] == '/' ? open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : 2;
  }();
  char line[1024];
  int length = snprintf(line, 64, "[simgpu %d] ", getpid());
  va_list arguments;
  va_start(arguments, format);
  length += vsnprintf(line + length, sizeof line - length - 2, format, arguments);
  va_end(arguments);
  if (length > 1020) length = 1020;
  line[length++] = '\n';
  if (write(fd, line, length) < 0) return;  // tracing is best effort
}

const char* intern(const std::string& text) {
  Lock lock(mu);
  static auto* all = new std::set<std::string>;
  return all->insert(text).first->c_str();
}

}  // namespace sim
