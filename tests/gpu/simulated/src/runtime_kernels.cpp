// The CUDA runtime: kernels compiled into a program, their launches, attributes and occupancy.
#include <cuda_runtime_api.h>
#include <string.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "copies.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "functions.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"

using namespace sim;

namespace {

struct Variable {
  size_t size;
  void* address[kMaxDevices];
};

// Filled by static initializers of libraries before main, so it is created on first use.
std::unordered_map<const void*, Function*>& registered_functions() {
  static auto* all = new std::unordered_map<const void*, Function*>;
  return *all;
}
std::unordered_map<const void*, Variable>& registered_variables() {
  static auto* all = new std::unordered_map<const void*, Variable>;
  return *all;
}

// Looks up a kernel by its host stub, or by a handle from cudaGetKernel or cudaLibraryGetKernel.
Function* function_of(const void* handle) {
  Lock lock(mu);
  auto found = registered_functions().find(handle);
  if (found == registered_functions().end()) return nullptr;
  Function* function = found->second;
  if (!function->registers) function->registers = assumed_registers(function->name);
  return function;
}

Function* new_function(const char* name) {
  Lock lock(mu);
  auto* function = new Function{name};
  registered_functions()[function] = function;
  return function;
}

struct CallConfiguration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
thread_local std::vector<CallConfiguration>* configurations;

cudaError_t launch(const void* handle, dim3 grid, dim3 block, void** arguments, size_t shared,
                   cudaStream_t stream, uint64_t entered, uint32_t correlation) {
  Function* function = function_of(handle);
  if (!function) return fail(cudaErrorInvalidDeviceFunction);
  return fail(
      launch_function(*function, grid, block, arguments, shared, stream_of(stream), entered, correlation));
}

}  // namespace

// --- registration, called by nvcc-generated host code ---

EXPORT void** __cudaRegisterFatBinary(void*) {
  static void* one;
  return &one;
}
EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
EXPORT void __cudaUnregisterFatBinary(void**) {}

EXPORT void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*,
                                   void*, void*, int*) {
  Lock lock(mu);
  registered_functions()[host] = new Function{name, 0};
}

EXPORT void __cudaRegisterVar(void**, char* host, char*, const char*, int, size_t size, int, int) {
  Lock lock(mu);
  registered_variables()[host] = {size, {}};
}

EXPORT void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  if (!configurations) configurations = new std::vector<CallConfiguration>;
  configurations->push_back({grid, block, shared, stream});
  return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (!configurations || configurations->empty()) return fail(cudaErrorInvalidConfiguration);
  CallConfiguration last = configurations->back();
  configurations->pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *(void**)stream = last.stream;
  return cudaSuccess;
}

EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* handle) {
  Function* function = function_of(handle);
  if (!function) return fail(cudaErrorInvalidDeviceFunction);
  Lock lock(mu);
  registered_functions()[function] = function;
  *kernel = (cudaKernel_t)function;
  return cudaSuccess;
}

EXPORT cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* handle) {
  return __cudaGetKernel(kernel, handle);
}

// --- launches ---

EXPORT cudaError_t CUDARTAPI cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                              size_t shared, cudaStream_t stream) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaLaunchKernel_v7000);
  NEED_CONTEXT();
  return launch(function, grid, block, arguments, shared, stream, entered, api.correlation);
}

EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                      size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel((const void*)kernel, grid, block, arguments, shared, stream);
}

EXPORT cudaError_t CUDARTAPI cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                                         void** arguments, size_t shared,
                                                         cudaStream_t stream) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaLaunchCooperativeKernel_v9000);
  NEED_CONTEXT();
  return launch(function, grid, block, arguments, shared, stream, entered, api.correlation);
}

EXPORT cudaError_t CUDARTAPI cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                                 void** arguments) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaLaunchKernelExC_v11060);
  NEED_CONTEXT();
  return launch(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                config->stream, entered, api.correlation);
}

// --- attributes ---

EXPORT cudaError_t CUDARTAPI cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* handle) {
  RUNTIME_CALL(cudaFuncGetAttributes_v3020);
  NEED_CONTEXT();
  Function* function = function_of(handle);
  if (!function) return fail(cudaErrorInvalidDeviceFunction);
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = function->max_threads;
  attributes->numRegs = function->registers;
  attributes->sharedSizeBytes = function->static_shared;
  attributes->ptxVersion = attributes->binaryVersion = model().major * 10 + model().minor;
  attributes->maxDynamicSharedSizeBytes =
      function->dynamic_shared_limit >= 0 ? function->dynamic_shared_limit : 49152 - function->static_shared;
  attributes->preferredShmemCarveout = -1;
  return cudaSuccess;
}

static cudaError_t set_attribute(const void* handle, cudaFuncAttribute attribute, int value) {
  Function* function = function_of(handle);
  if (!function) return fail(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value > model().shared_memory_optin - function->static_shared)
      return fail(cudaErrorInvalidValue);
    function->dynamic_shared_limit = value;
  }
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaFuncSetAttribute(const void* handle, cudaFuncAttribute attribute,
                                                  int value) {
  RUNTIME_CALL(cudaFuncSetAttribute_v9000);
  NEED_CONTEXT();
  return set_attribute(handle, attribute, value);
}

EXPORT cudaError_t CUDARTAPI cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute,
                                                             int value, int) {
  return set_attribute((const void*)kernel, attribute, value);
}

EXPORT cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                                    const void* handle,
                                                                                    int threads,
                                                                                    size_t shared, unsigned) {
  RUNTIME_CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_v7000);
  NEED_CONTEXT();
  Function* function = function_of(handle);
  if (!function) return fail(cudaErrorInvalidDeviceFunction);
  *blocks = occupancy(*function, threads, shared);
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* handle,
                                                                           int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads, shared, 0);
}

// --- variables ---

EXPORT cudaError_t CUDARTAPI cudaGetSymbolAddress(void** address, const void* symbol) {
  NEED_CONTEXT();
  Lock lock(mu);
  auto found = registered_variables().find(symbol);
  if (found == registered_variables().end()) return fail(cudaErrorInvalidSymbol);
  void*& there = found->second.address[current_device()];
  if (!there) {
    // Part of the module's memory, which is included in the context's.
    size_t size = (found->second.size + kGranularity - 1) / kGranularity * kGranularity;
    there = reserve_pages(size, true);
    if (!there) return fail(cudaErrorMemoryAllocation);
    add_range({(char*)there, size, kDeviceMemory, current_device()});
  }
  *address = there;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaMemcpyToSymbol(const void* symbol, const void* source, size_t bytes,
                                                size_t offset, cudaMemcpyKind) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaMemcpyToSymbol_v3020);
  void* address;
  if (cudaError_t error = cudaGetSymbolAddress(&address, symbol)) return error;
  return fail(copy_memory((char*)address + offset, source, bytes, stream_of(nullptr), false, entered,
                          api.correlation));
}

// --- libraries (kernels loaded at run time) ---

EXPORT cudaError_t CUDARTAPI cudaLibraryLoadData(cudaLibrary_t* library, const void*, cudaJitOption*, void**,
                                                 unsigned, cudaLibraryOption*, void**, unsigned) {
  *library = (cudaLibrary_t) new char;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaLibraryLoadFromFile(cudaLibrary_t* library, const char*, cudaJitOption*,
                                                     void**, unsigned, cudaLibraryOption*, void**, unsigned) {
  *library = (cudaLibrary_t) new char;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaLibraryUnload(cudaLibrary_t) {
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char* name) {
  *kernel = (cudaKernel_t)new_function(intern(name));
  return cudaSuccess;
}
