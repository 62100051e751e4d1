// Static properties of the simulated GPU, from its data sheet and the CUDA programming guide.
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#include <string>

namespace sim {

// Rates are dense data-sheet peaks, per second.
struct DeviceModel {
  const char* key;  // value of SIMGPU
  const char* name;
  int major, minor;  // compute capability
  int multiprocessors;
  int threads_per_sm, blocks_per_sm;
  int shared_memory_per_sm;       // bytes
  int shared_memory_optin;        // maximum bytes per block with cudaFuncAttributeMaxDynamicSharedMemorySize
  int reserved_shared_per_block;  // bytes that the driver reserves per block
  int l2_bytes;
  double memory_gib;
  double bandwidth;  // bytes/s of device memory
  double fp64_flops, fp32_flops, tf32_flops, fp16_flops, fp8_flops;
  int clock_mhz, memory_clock_mhz, bus_bits;
  double pcie_pinned, pcie_pageable;  // bytes/s between host and device
  double peer_bandwidth;              // bytes/s to another device: NVLink if available, otherwise PCIe
  int idle_watts, max_watts;
};

// The GPU selected by SIMGPU (default H100). All simulated devices of a process are of this model.
const DeviceModel& model();

// SIMGPU_MIG: each GPU is split into two 3g instances, and CUDA sees the instances instead of the GPUs.
bool mig_mode();

uint64_t total_bytes();    // device memory (SIMGPU_MEMORY_MB)
uint64_t context_bytes();  // device memory used by a CUDA context

// The current clock, which SIMGPU_CLOCK_MHZ and SIMGPU_LIMITED_BY lower.
int current_clock_mhz();

// UUIDs of a GPU and of its MIG instance that CUDA sees.
void uuid_of(int physical_device, unsigned char out[16]);
void mig_uuid_of(int physical_device, int instance, unsigned char out[16]);
std::string uuid_text(const char* prefix, const unsigned char uuid[16]);

int device_attribute(int attribute, int device);
void fill_properties(cudaDeviceProp* properties, int device);

}  // namespace sim
