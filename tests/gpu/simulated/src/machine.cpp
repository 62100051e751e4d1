#include "machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>

#include "process.h"
#include "timeline.h"

namespace sim {

// Calls back with the shared usage of the device of each process on this machine, and removes the files of
// dead processes.
static void for_each_process(int device, const std::function<void(int pid, const SharedUsage&)>& each) {
  DIR* folder = opendir("/dev/shm");
  if (!folder) return;
  std::string prefix = machine_prefix();
  while (dirent* entry = readdir(folder)) {
    std::string name = entry->d_name;
    if (name.rfind("simgpu.", 0) != 0) continue;
    size_t last = name.rfind('.'), middle = name.rfind('.', last - 1);
    if (middle == std::string::npos || middle < strlen("simgpu.")) continue;
    int pid = atoi(name.c_str() + middle + 1);
    std::string file = "/dev/shm/" + name;
    if (pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH)) {
      unlink(file.c_str());
      continue;
    }
    if (name.substr(0, middle + 1) != prefix || atoi(name.c_str() + last + 1) != device) continue;
    int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    SharedUsage usage;
    if (read(fd, &usage, sizeof usage) == (ssize_t)sizeof usage) each(pid, usage);
    close(fd);
  }
  closedir(folder);
}

static std::vector<GpuProcess> configured_processes(int device) {
  std::vector<GpuProcess> configured;
  const char* list = getenv("SIMGPU_OTHER_PROCESSES");
  if (!list || device != 0) return configured;
  for (const char* at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : nullptr) {
    int pid;
    unsigned long long mebibytes;
    if (sscanf(at, "%d:%llu", &pid, &mebibytes) == 2) configured.push_back({pid, mebibytes << 20});
  }
  return configured;
}

std::vector<GpuProcess> gpu_processes(int device) {
  std::vector<GpuProcess> found = configured_processes(device);
  for_each_process(device,
                   [&](int pid, const SharedUsage& usage) { found.push_back({pid, usage.used_bytes}); });
  return found;
}

uint64_t other_processes_bytes(int device) {
  uint64_t bytes = 0;
  for (const GpuProcess& process : gpu_processes(device))
    if (process.pid != getpid()) bytes += process.bytes;
  return bytes;
}

double gpu_busy(int device) {
  constexpr int kBuckets = 10;
  uint64_t current = now() / kUsageBucketNs, busy = 0;
  for_each_process(device, [&](int, const SharedUsage& usage) {
    for (const auto& bucket : usage.buckets)
      if (bucket.index < current && bucket.index + kBuckets >= current) busy += bucket.busy_ns;
  });
  return std::min(1., (double)busy / (kBuckets * kUsageBucketNs));
}

uint64_t gpu_busy_ns(int device) {
  uint64_t busy = 0;
  for_each_process(device, [&](int, const SharedUsage& usage) { busy += usage.busy_ns; });
  return busy;
}

}  // namespace sim
