#include "device_model.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "process.h"

namespace sim {

namespace {

// Rates: NVIDIA's data sheets (dense, boost clock). SM limits: CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability". Memory: as nvidia-smi reports it. PCIe: about 80% of the link rate,
// generation 5 on H100, H200 and B200, 4 on A100, 4090 and L4, 3 on V100; pageable memory goes through the
// driver's staging buffer.
constexpr DeviceModel kModels[] = {
    {"h100",   "NVIDIA H100 80GB HBM3",
     9,        0,
     132,      2048,
     32,       233472,
     232448,   1024,
     50 << 20, 79.1,
     3.352e12, 66.9e12,
     66.9e12,  494.7e12,
     989.4e12, 1978.9e12,
     1980,     2619,
     5120,     50e9,
     10e9,     360e9,
     70,       700},
    {"h200", "NVIDIA H200", 9,     0,      132,     2048,    32,       233472,   232448,
     1024,   60 << 20,      139.8, 4.8e12, 66.9e12, 66.9e12, 494.7e12, 989.4e12, 1978.9e12,
     1980,   3201,          6144,  50e9,   10e9,    360e9,   75,       700},
    {"b200", "NVIDIA B200", 10,     0,    148,   2048,  32,      233472,  232448,
     1024,   126 << 20,     178.35, 8e12, 37e12, 75e12, 1100e12, 2250e12, 4500e12,
     1965,   3996,          8192,   50e9, 10e9,  720e9, 140,     1000},
    {"a100",   "NVIDIA A100-SXM4-80GB",
     8,        0,
     108,      2048,
     32,       167936,
     166912,   1024,
     40 << 20, 79.15,
     2.039e12, 9.7e12,
     19.5e12,  156e12,
     312e12,   312e12,
     1410,     1593,
     5120,     25e9,
     8e9,      240e9,
     60,       400},
    {"rtx4090", "NVIDIA GeForce RTX 4090",
     8,         9,
     128,       1536,
     24,        102400,
     101376,    1024,
     72 << 20,  23.52,
     1.008e12,  1.29e12,
     82.6e12,   82.6e12,
     165.2e12,  330.3e12,
     2520,      10501,
     384,       25e9,
     12e9,      20e9,
     20,        450},
    {"l4", "NVIDIA L4", 8,     9,     58,       1536,    24,      102400, 101376,
     1024, 48 << 20,    22.05, 300e9, 0.473e12, 30.3e12, 60.5e12, 121e12, 242.5e12,
     2040, 6251,        192,   25e9,  8e9,      20e9,    12,      72},
    {"v100",  "Tesla V100-SXM2-32GB",
     7,       0,
     80,      2048,
     32,      98304,
     98304,   0,
     6 << 20, 31.75,
     900e9,   7.8e12,
     15.7e12, 15.7e12,
     125e12,  125e12,
     1530,    877,
     4096,    12.5e9,
     6e9,     120e9,
     40,      300},
};

// A 3g instance of an H100 80GB: MIG User Guide, "Supported MIG Profiles".
DeviceModel mig_instance(const DeviceModel& gpu) {
  static char name[96];
  snprintf(name, sizeof name, "%s MIG 3g.%dgb", gpu.name, (int)(gpu.memory_gib / 2 + 0.5));
  DeviceModel instance = gpu;
  instance.name = name;
  instance.multiprocessors = gpu.multiprocessors * 60 / 132;
  instance.l2_bytes = gpu.l2_bytes / 2;
  instance.memory_gib = gpu.memory_gib / 2;
  instance.bandwidth = gpu.bandwidth / 2;
  double share = (double)instance.multiprocessors / gpu.multiprocessors;
  for (double* rate : {&instance.fp64_flops, &instance.fp32_flops, &instance.tf32_flops, &instance.fp16_flops,
                       &instance.fp8_flops})
    *rate *= share;
  return instance;
}

DeviceModel selected_model() {
  const char* requested = getenv("SIMGPU");
  const DeviceModel* found = requested && *requested ? nullptr : &kModels[0];
  if (requested)
    for (const DeviceModel& each : kModels)
      if (strcasecmp(each.key, requested) == 0) found = &each;
  if (!found) {
    fprintf(stderr, "simulated GPU: SIMGPU=%s is not a known GPU. Use one of", requested);
    for (const DeviceModel& each : kModels) fprintf(stderr, " %s", each.key);
    fprintf(stderr, "\n");
    _exit(2);
  }
  return mig_mode() ? mig_instance(*found) : *found;
}

uint64_t memory_bytes() {
  if (const char* mebibytes = getenv("SIMGPU_MEMORY_MB")) return strtoull(mebibytes, nullptr, 10) << 20;
  return (uint64_t)(model().memory_gib * 1024) << 20;
}

int configured_clock() {
  if (const char* mhz = getenv("SIMGPU_CLOCK_MHZ")) return atoi(mhz);
  // A power or thermal limit lowers the clock. NVML reports the reason.
  return getenv("SIMGPU_LIMITED_BY") ? model().clock_mhz * 7 / 10 : model().clock_mhz;
}

}  // namespace

const DeviceModel& model() {
  static const DeviceModel* selected = new DeviceModel(selected_model());
  return *selected;
}

bool mig_mode() {
  static const bool mode = [] {
    const char* value = getenv("SIMGPU_MIG");
    return value && *value && strcmp(value, "0") != 0;
  }();
  return mode;
}

uint64_t total_bytes() {
  static const uint64_t bytes = memory_bytes();
  return bytes;
}

// About what nvidia-smi shows for a process that only created a context (H100, driver 550).
uint64_t context_bytes() {
  return 520ull << 20;
}

int current_clock_mhz() {
  static const int mhz = configured_clock();
  return mhz;
}

void uuid_of(int physical, unsigned char out[16]) {
  for (int i = 0; i < 16; i++) out[i] = (unsigned char)(0x51 + i * 7 + physical * 13);
}

void mig_uuid_of(int physical, int instance, unsigned char out[16]) {
  for (int i = 0; i < 16; i++) out[i] = (unsigned char)(0xa3 + i * 11 + physical * 13 + instance * 29);
}

std::string uuid_text(const char* prefix, const unsigned char u[16]) {
  char text[64];
  snprintf(text, sizeof text, "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
           prefix, u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
           u[14], u[15]);
  return text;
}

int device_attribute(int attribute, int device) {
  const DeviceModel& m = model();
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 49152;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return m.clock_mhz * 1000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return m.memory_clock_mhz * 1000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return m.bus_bits;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return m.multiprocessors;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return m.l2_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE:
      return m.major >= 8 ? m.l2_bytes / 2 : 0;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return m.threads_per_sm;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return m.blocks_per_sm;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return m.major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return m.minor;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return m.shared_memory_per_sm;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return m.shared_memory_optin;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return m.reserved_shared_per_block;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return 0x18 + visible_to_physical(device);
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      return 0;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      return (int)(m.fp32_flops / m.fp64_flops + 0.5);
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
      return m.major >= 9;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      return 1;
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
      return m.memory_gib > 30;
    // The machine has no NVSwitch multicast, GPUDirect RDMA and the like.
    default:
      return 0;
  }
}

void fill_properties(cudaDeviceProp* p, int device) {
  const DeviceModel& m = model();
  auto attribute = [&](int which) { return device_attribute(which, device); };
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "%s", m.name);
  device_uuid(device, (unsigned char*)p->uuid.bytes);
  p->totalGlobalMem = total_bytes();
  p->sharedMemPerBlock = 49152;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->memPitch = 2147483647;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = m.major;
  p->minor = m.minor;
  p->textureAlignment = 512;
  p->texturePitchAlignment = 32;
  p->multiProcessorCount = m.multiprocessors;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported = 1;
  p->globalL1CacheSupported = p->localL1CacheSupported = p->managedMemory = p->concurrentManagedAccess = 1;
  p->computePreemptionSupported = p->cooperativeLaunch = p->hostRegisterSupported = p->memoryPoolsSupported =
      1;
  p->ECCEnabled = attribute(CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
  p->pciBusID = attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  p->asyncEngineCount = attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  p->memoryBusWidth = m.bus_bits;
  p->l2CacheSize = m.l2_bytes;
  p->persistingL2CacheMaxSize = attribute(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE);
  p->maxThreadsPerMultiProcessor = m.threads_per_sm;
  p->maxBlocksPerMultiProcessor = m.blocks_per_sm;
  p->sharedMemPerMultiprocessor = m.shared_memory_per_sm;
  p->sharedMemPerBlockOptin = m.shared_memory_optin;
  p->reservedSharedMemPerBlock = m.reserved_shared_per_block;
  p->clusterLaunch = m.major >= 9;
  p->maxTexture1D = 131072;
  p->maxSurface1D = 32768;
}

}  // namespace sim
