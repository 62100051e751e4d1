// What is known of the simulated GPU: the facts of its data sheet and of the CUDA programming guide.
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#include <string>

namespace sim {

// Rates are dense peaks of the data sheet, per second.
struct DeviceModel {
  const char* key;  // as SIMGPU names it
  const char* name;
  int major, minor;  // compute capability
  int multiprocessors;
  int threads_per_sm, blocks_per_sm;
  int shared_memory_per_sm;  // bytes
  int shared_memory_optin;   // bytes that one block can have with cudaFuncAttributeMaxDynamicSharedMemorySize
  int reserved_shared_per_block;  // bytes that the driver takes of each block
  int l2_bytes;
  double memory_gib;
  double bandwidth;  // bytes/s of device memory
  double fp64_flops, fp32_flops, tf32_flops, fp16_flops, fp8_flops;
  int clock_mhz, memory_clock_mhz, bus_bits;
  double pcie_pinned, pcie_pageable;  // bytes/s between host and device
  double peer_bandwidth;              // bytes/s to another device: NVLink, or PCIe where there is none
  int idle_watts, max_watts;
};

// The GPU that SIMGPU names (H100 without it); every simulated device of a process is of this model.
const DeviceModel& model();

// SIMGPU_MIG: each GPU is split into two 3g instances, and CUDA sees the instances.
bool mig_mode();

uint64_t total_bytes();    // of device memory (SIMGPU_MEMORY_MB)
uint64_t context_bytes();  // what a CUDA context takes of it

// The clock that the device runs at: lower than the model's under SIMGPU_CLOCK_MHZ or SIMGPU_LIMITED_BY.
int current_clock_mhz();

// UUIDs: of a GPU, and of the MIG instance that CUDA sees of it.
void uuid_of(int physical_device, unsigned char out[16]);
void mig_uuid_of(int physical_device, int instance, unsigned char out[16]);
std::string uuid_text(const char* prefix, const unsigned char uuid[16]);

int device_attribute(int attribute, int device);
void fill_properties(cudaDeviceProp* properties, int device);

}  // namespace sim
