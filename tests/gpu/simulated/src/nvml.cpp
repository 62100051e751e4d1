// NVML.
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <algorithm>
#include <string>
#include <vector>
#include "cost_model.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"
using namespace sim;
#define N(...) EXPORT int __VA_ARGS__
static std::vector<std::pair<int, uint64_t>> processes(int device) {
  std::vector<std::pair<int, uint64_t>> out;
  DIR* d = opendir("/dev/shm");
  if (!d) return out;
  while (dirent* e = readdir(d)) {
    int pid, dev;
    if (sscanf(e->d_name, "simgpu.%d.%d", &pid, &dev) == 2 && dev == device) {
      std::string p = std::string("/dev/shm/") + e->d_name;
      if (kill(pid, 0) != 0) {
        unlink(p.c_str());
        continue;
      }
      FILE* f = fopen(p.c_str(), "rb");
      uint64_t v = 0;
      if (f) {
        (void)!fread(&v, 8, 1, f);
        fclose(f);
      }
      out.push_back({pid, v});
    }
  }
  closedir(d);
  return out;
}
static int at(void* h) {
  return (int)((uintptr_t)h - 1);
}
static std::string uuid(int i) {
  unsigned char u[16];
  char t[64];
  uuid_of(i, u);
  snprintf(t, sizeof t, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
           u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
  return t;
}
N(nvmlInit_v2()) {
  return 0;
}
N(nvmlInit()) {
  return 0;
}
N(nvmlInitWithFlags(unsigned)) {
  return 0;
}
N(nvmlShutdown()) {
  return 0;
}
EXPORT const char* nvmlErrorString(int e) {
  return e ? "Not Supported" : "Success";
}
N(nvmlDeviceGetCount_v2(unsigned* n)) {
  *n = physical_count();
  return 0;
}
N(nvmlDeviceGetHandleByIndex_v2(unsigned i, void** h)) {
  if ((int)i >= physical_count()) return 2;
  *h = (void*)(uintptr_t)(i + 1);
  return 0;
}
N(nvmlDeviceGetHandleByUUID(const char* u, void** h)) {
  for (int i = 0; i < physical_count(); i++)
    if (uuid(i) == u) {
      *h = (void*)(uintptr_t)(i + 1);
      return 0;
    }
  return 6;
}
N(nvmlDeviceGetHandleByPciBusId_v2(const char*, void** h)) {
  *h = (void*)1;
  return 0;
}
N(nvmlDeviceGetIndex(void* h, unsigned* i)) {
  *i = at(h);
  return 0;
}
N(nvmlDeviceGetUUID(void* h, char* s, unsigned n)) {
  snprintf(s, n, "%s", uuid(at(h)).c_str());
  return 0;
}
N(nvmlDeviceGetName(void*, char* s, unsigned n)) {
  snprintf(s, n, "%s", model().name);
  return 0;
}
struct Mem {
  unsigned long long total, free, used;
};
struct Mem2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
static uint64_t in_use(int i) {
  uint64_t u = 0;
  for (auto& p : processes(i)) u += p.second;
  return u;
}
N(nvmlDeviceGetMemoryInfo(void* h, Mem* m)) {
  m->total = total_bytes();
  m->used = in_use(at(h));
  m->free = m->total - m->used;
  return 0;
}
N(nvmlDeviceGetMemoryInfo_v2(void* h, Mem2* m)) {
  m->total = total_bytes();
  m->reserved = 0;
  m->used = in_use(at(h));
  m->free = m->total - m->used;
  return 0;
}
struct Util {
  unsigned gpu, memory;
};
N(nvmlDeviceGetUtilizationRates(void*, Util* u)) {
  u->gpu = 50;
  u->memory = 20;
  return 0;
}
N(nvmlDeviceGetTemperature(void*, int, unsigned* t)) {
  *t = 45;
  return 0;
}
N(nvmlDeviceGetPowerUsage(void*, unsigned* p)) {
  *p = 350000;
  return 0;
}
N(nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* e)) {
  *e = now() / 1000000ull * 350;
  return 0;
}
N(nvmlDeviceGetClockInfo(void*, int, unsigned* c)) {
  *c = model().clock_mhz;
  return 0;
}
N(nvmlDeviceGetMaxClockInfo(void*, int, unsigned* c)) {
  *c = model().clock_mhz;
  return 0;
}
N(nvmlDeviceGetCurrentClocksEventReasons(void*, unsigned long long* r)) {
  *r = 0;
  return 0;
}
N(nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* r)) {
  *r = 0;
  return 0;
}
N(nvmlSystemGetCudaDriverVersion_v2(int* v)) {
  *v = 13020;
  return 0;
}
N(nvmlSystemGetDriverVersion(char* s, unsigned n)) {
  snprintf(s, n, "595.00.00");
  return 0;
}
N(nvmlDeviceGetCudaComputeCapability(void*, int* a, int* b)) {
  *a = model().major;
  *b = model().minor;
  return 0;
}
struct Proc {
  unsigned pid;
  unsigned long long bytes;
  unsigned gi, ci;
};
static int procs(void* h, unsigned* n, Proc* out) {
  auto all = processes(at(h));
  unsigned room = *n;
  *n = all.size();
  if (all.size() > room) return 7;
  for (size_t i = 0; i < all.size(); i++) out[i] = {(unsigned)all[i].first, all[i].second, ~0u, ~0u};
  return 0;
}
N(nvmlDeviceGetComputeRunningProcesses_v3(void* h, unsigned* n, Proc* p)) {
  return procs(h, n, p);
}
N(nvmlDeviceGetComputeRunningProcesses_v2(void* h, unsigned* n, Proc* p)) {
  return procs(h, n, p);
}
N(nvmlDeviceGetComputeRunningProcesses(void* h, unsigned* n, Proc* p)) {
  return procs(h, n, p);
}
