// NVML. Its header is not shipped with torch. Names, constants and structures follow the NVML API reference.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "device_model.h"
#include "export.h"
#include "machine.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"
#include "version.h"

using namespace sim;

namespace {

enum Return {
  kSuccess = 0,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
};

// A handle refers to a GPU (1 + index) or to one of its MIG instances.
struct Device {
  int physical;
  int instance;  // -1 for the GPU itself
};

void* handle_of(int physical, int instance = -1) {
  return (void*)(uintptr_t)(1 + physical + (instance + 1) * 0x100);
}

bool find_device(void* handle, Device* out) {
  auto value = (uintptr_t)handle;
  *out = {(int)(value % 0x100) - 1, (int)(value / 0x100) - 1};
  return out->physical >= 0 && out->physical < physical_count() && out->instance < 2;
}

#define FIND(device, handle) \
  Device device;             \
  if (!find_device(handle, &device)) return kInvalidArgument
// Clocks, power and similar values belong to the GPU. NVML rejects them for a MIG instance.
#define FIND_GPU(device, handle) \
  FIND(device, handle);          \
  if (device.instance >= 0) return kNotSupported

std::string uuid_of_device(const Device& device) {
  unsigned char uuid[16];
  if (device.instance < 0) {
    uuid_of(device.physical, uuid);
    return uuid_text("GPU-", uuid);
  }
  mig_uuid_of(device.physical, device.instance, uuid);
  return uuid_text("MIG-", uuid);
}

int copy_text(const std::string& text, char* out, unsigned size) {
  if (text.size() + 1 > size) return kInsufficientSize;
  memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

uint64_t bytes_in_use(int physical) {
  uint64_t used = 0;
  for (const GpuProcess& process : gpu_processes(physical)) used += process.bytes;
  return std::min(used, total_bytes());
}

bool limited_by(const char* cause) {
  const char* by = getenv("SIMGPU_LIMITED_BY");
  return by && strcmp(by, cause) == 0;
}

unsigned power_watts(int physical) {
  const DeviceModel& m = model();
  if (limited_by("power")) return m.max_watts;
  return (unsigned)(m.idle_watts + gpu_busy(physical) * 0.75 * (m.max_watts - m.idle_watts));
}

}  // namespace

// --- the library ---

EXPORT int nvmlInit_v2() {
  return kSuccess;
}
EXPORT int nvmlInit() {
  return kSuccess;
}
EXPORT int nvmlInitWithFlags(unsigned) {
  return kSuccess;
}
EXPORT int nvmlShutdown() {
  return kSuccess;
}

EXPORT const char* nvmlErrorString(int error) {
  switch (error) {
    case kSuccess:
      return "Success";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    default:
      return "Unknown Error";
  }
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = kDriverVersion;
  return kSuccess;
}
EXPORT int nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}
EXPORT int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return copy_text(kDriverRelease, out, size);
}
EXPORT int nvmlSystemGetNVMLVersion(char* out, unsigned size) {
  return copy_text(std::string("13.") + kDriverRelease, out, size);
}

// --- devices ---

EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = physical_count();
  return kSuccess;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if ((int)index >= physical_count()) return kInvalidArgument;
  *handle = handle_of((int)index);
  return kSuccess;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (!uuid) return kInvalidArgument;
  for (int physical = 0; physical < physical_count(); physical++)
    for (int instance = -1; instance < (mig_mode() ? 2 : 0); instance++)
      if (uuid_of_device({physical, instance}) == uuid) {
        *handle = handle_of(physical, instance);
        return kSuccess;
      }
  return kNotFound;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle) {
  unsigned domain, bus, device;
  if (!id || sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3) return kInvalidArgument;
  int physical = (int)bus - 0x18;
  if (physical < 0 || physical >= physical_count()) return kNotFound;
  *handle = handle_of(physical);
  return kSuccess;
}

EXPORT int nvmlDeviceGetIndex(void* handle, unsigned* index) {
  FIND(device, handle);
  *index = device.instance < 0 ? device.physical : device.instance;
  return kSuccess;
}

EXPORT int nvmlDeviceGetUUID(void* handle, char* out, unsigned size) {
  FIND(device, handle);
  return copy_text(uuid_of_device(device), out, size);
}

EXPORT int nvmlDeviceGetName(void* handle, char* out, unsigned size) {
  FIND(device, handle);
  std::string name = model().name;
  // With MIG, the model is the instance. The GPU's name has no MIG suffix.
  if (mig_mode() && device.instance < 0) name.resize(name.find(" MIG "));
  return copy_text(name, out, size);
}

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
EXPORT int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* info) {
  FIND(device, handle);
  memset(info, 0, sizeof *info);
  info->bus = 0x18 + device.physical;
  info->pci_device_id = 0x233010de;
  snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
  snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0", info->bus);
  return kSuccess;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(void* handle, int* major, int* minor) {
  FIND(device, handle);
  *major = model().major;
  *minor = model().minor;
  return kSuccess;
}

// --- MIG ---

EXPORT int nvmlDeviceGetMigMode(void* handle, unsigned* current, unsigned* pending) {
  FIND_GPU(device, handle);
  if (model().major < 8 || model().minor == 9) return kNotSupported;
  *current = *pending = mig_mode();
  return kSuccess;
}

EXPORT int nvmlDeviceIsMigDeviceHandle(void* handle, unsigned* is) {
  FIND(device, handle);
  *is = device.instance >= 0;
  return kSuccess;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(void* handle, unsigned* count) {
  FIND_GPU(device, handle);
  *count = mig_mode() ? 7 : 0;
  return kSuccess;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void* handle, unsigned index, void** instance) {
  FIND_GPU(device, handle);
  if (!mig_mode()) return kNotSupported;
  if (index >= 2) return kNotFound;
  *instance = handle_of(device.physical, (int)index);
  return kSuccess;
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* handle, void** gpu) {
  FIND(device, handle);
  if (device.instance < 0) return kInvalidArgument;
  *gpu = handle_of(device.physical);
  return kSuccess;
}

EXPORT int nvmlDeviceGetGpuInstanceId(void* handle, unsigned* id) {
  FIND(device, handle);
  if (device.instance < 0) return kNotSupported;
  *id = 1 + device.instance;
  return kSuccess;
}

EXPORT int nvmlDeviceGetComputeInstanceId(void* handle, unsigned* id) {
  FIND(device, handle);
  if (device.instance < 0) return kNotSupported;
  *id = 0;
  return kSuccess;
}

// --- memory, utilization ---

struct Memory {
  unsigned long long total, free, used;
};
EXPORT int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  FIND(device, handle);
  memory->total = total_bytes() * (mig_mode() && device.instance < 0 ? 2 : 1);
  memory->used = bytes_in_use(device.physical);
  memory->free = memory->total - memory->used;
  return kSuccess;
}

struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
EXPORT int nvmlDeviceGetMemoryInfo_v2(void* handle, Memory2* memory) {
  Memory simple;
  if (int error = nvmlDeviceGetMemoryInfo(handle, &simple)) return error;
  memory->total = simple.total;
  memory->reserved = 0;
  memory->free = simple.free;
  memory->used = simple.used;
  return kSuccess;
}

struct Utilization {
  unsigned gpu, memory;
};
EXPORT int nvmlDeviceGetUtilizationRates(void* handle, Utilization* utilization) {
  FIND_GPU(device, handle);
  if (mig_mode()) return kNotSupported;
  double busy = gpu_busy(device.physical);
  utilization->gpu = (unsigned)(busy * 100 + 0.5);
  utilization->memory = utilization->gpu / 2;
  return kSuccess;
}

struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
static int list_processes(void* handle, unsigned* count, Process* out) {
  FIND(device, handle);
  std::vector<GpuProcess> processes = gpu_processes(device.physical);
  unsigned room = *count;
  *count = (unsigned)processes.size();
  if (processes.size() > room) return kInsufficientSize;
  for (size_t i = 0; i < processes.size(); i++)
    out[i] = {(unsigned)processes[i].pid, processes[i].bytes, mig_mode() ? 1u : ~0u, mig_mode() ? 0u : ~0u};
  return kSuccess;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, Process* out) {
  return list_processes(handle, count, out);
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(void* handle, unsigned* count, Process* out) {
  return list_processes(handle, count, out);
}
EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(void* handle, unsigned* count, Process*) {
  FIND(device, handle);
  *count = 0;
  return kSuccess;
}

// Version 1 of the structure has no instance ids.
struct ProcessV1 {
  unsigned pid;
  unsigned long long bytes;
};
EXPORT int nvmlDeviceGetComputeRunningProcesses(void* handle, unsigned* count, ProcessV1* out) {
  std::vector<Process> all(*count);
  if (int error = list_processes(handle, count, all.data())) return error;
  for (unsigned i = 0; i < *count; i++) out[i] = {all[i].pid, all[i].bytes};
  return kSuccess;
}

// --- clocks, power, heat ---

enum ClockType { kGraphicsClock, kSmClock, kMemoryClock, kVideoClock };

EXPORT int nvmlDeviceGetClockInfo(void* handle, int type, unsigned* mhz) {
  FIND_GPU(device, handle);
  *mhz = type == kMemoryClock ? model().memory_clock_mhz : current_clock_mhz();
  return kSuccess;
}

EXPORT int nvmlDeviceGetMaxClockInfo(void* handle, int type, unsigned* mhz) {
  FIND_GPU(device, handle);
  *mhz = type == kMemoryClock ? model().memory_clock_mhz : model().clock_mhz;
  return kSuccess;
}

EXPORT int nvmlDeviceGetApplicationsClock(void* handle, int type, unsigned* mhz) {
  return nvmlDeviceGetMaxClockInfo(handle, type, mhz);
}

// nvmlClocksEventReason*.
constexpr unsigned long long kReasonIdle = 0x1, kReasonApplicationClocks = 0x2, kReasonPowerCap = 0x4,
                             kReasonHardware = 0x8, kReasonThermal = 0x20;

EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void* handle, unsigned long long* reasons) {
  FIND_GPU(device, handle);
  *reasons = limited_by("power")                       ? kReasonPowerCap
             : limited_by("heat")                      ? kReasonThermal
             : limited_by("hardware")                  ? kReasonHardware
             : current_clock_mhz() < model().clock_mhz ? kReasonApplicationClocks
             : gpu_busy(device.physical) == 0          ? kReasonIdle
                                                       : 0;
  return kSuccess;
}
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
  return nvmlDeviceGetCurrentClocksEventReasons(handle, reasons);
}
EXPORT int nvmlDeviceGetSupportedClocksEventReasons(void* handle, unsigned long long* reasons) {
  FIND_GPU(device, handle);
  *reasons = kReasonIdle | kReasonApplicationClocks | kReasonPowerCap | kReasonHardware | kReasonThermal;
  return kSuccess;
}
EXPORT int nvmlDeviceGetSupportedClocksThrottleReasons(void* handle, unsigned long long* reasons) {
  return nvmlDeviceGetSupportedClocksEventReasons(handle, reasons);
}

EXPORT int nvmlDeviceGetTemperature(void* handle, int, unsigned* celsius) {
  FIND_GPU(device, handle);
  *celsius = limited_by("heat") ? 88 : 35 + (unsigned)(gpu_busy(device.physical) * 30);
  return kSuccess;
}

EXPORT int nvmlDeviceGetPowerUsage(void* handle, unsigned* milliwatts) {
  FIND_GPU(device, handle);
  *milliwatts = power_watts(device.physical) * 1000;
  return kSuccess;
}

static int power_limit(void* handle, unsigned* milliwatts) {
  FIND_GPU(device, handle);
  *milliwatts = model().max_watts * 1000;
  return kSuccess;
}
EXPORT int nvmlDeviceGetPowerManagementLimit(void* handle, unsigned* milliwatts) {
  return power_limit(handle, milliwatts);
}
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void* handle, unsigned* milliwatts) {
  return power_limit(handle, milliwatts);
}

// Millijoules since the driver was loaded.
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules) {
  FIND_GPU(device, handle);
  const DeviceModel& m = model();
  double busy_seconds = gpu_busy_ns(device.physical) / 1e9;
  *millijoules = (unsigned long long)(1000 * (now() / 1e9 * m.idle_watts +
                                              busy_seconds * 0.75 * (m.max_watts - m.idle_watts)));
  return kSuccess;
}

EXPORT int nvmlDeviceGetPerformanceState(void* handle, int* state) {
  FIND_GPU(device, handle);
  *state = 0;
  return kSuccess;
}

EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(void* handle, unsigned* generation) {
  FIND_GPU(device, handle);
  *generation = model().pcie_pinned > 40e9 ? 5 : model().pcie_pinned > 20e9 ? 4 : 3;
  return kSuccess;
}
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(void* handle, unsigned* width) {
  FIND_GPU(device, handle);
  *width = 16;
  return kSuccess;
}
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(void* handle, unsigned* generation) {
  return nvmlDeviceGetCurrPcieLinkGeneration(handle, generation);
}
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(void* handle, unsigned* width) {
  return nvmlDeviceGetCurrPcieLinkWidth(handle, width);
}
