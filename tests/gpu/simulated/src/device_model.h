// What is known of the simulated GPU: the facts of its data sheet and of the CUDA programming guide.
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

namespace sim {

// Rates are dense peaks of the data sheet, per second.
struct DeviceModel {
  const char* name;
  int major, minor;  // compute capability
  int multiprocessors;
  int shared_memory_per_sm;  // bytes
  int shared_memory_optin;   // bytes that one block can have with cudaFuncAttributeMaxDynamicSharedMemorySize
  int l2_bytes;
  double memory_gib;
  double bandwidth;  // bytes/s of device memory
  double fp64_flops, fp32_flops, tf32_flops, fp16_flops, fp8_flops;
  int clock_mhz;
  int bus_bits;
};

// The GPU that SIMGPU names; every simulated device of a process is of this model.
const DeviceModel& model();

uint64_t total_bytes();    // of device memory (SIMGPU_MEMORY_MB)
uint64_t context_bytes();  // what a CUDA context takes of it

void uuid_of(int physical_device, unsigned char out[16]);
int device_attribute(int attribute);
void fill_properties(cudaDeviceProp* properties, int device);

}  // namespace sim
