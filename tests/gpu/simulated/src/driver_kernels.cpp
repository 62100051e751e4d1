// The driver API: modules, kernels, launches, occupancy.
#include <cuda.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <string>

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

struct Module {
  std::map<std::string, Function> functions;
  bool complete = false;  // true if the image was parsed: a kernel that is not in `functions` does not exist
};

// Kernel handles are Function*. A CUkernel and its CUfunction are the same handle.
Function* function_of(const void* handle) {
  return (Function*)handle;
}

int load(void** out, const void* image) {
  if (int error = init_context()) return error;
  auto* module = new Module;
  for (const Function& function : functions_of_image(image))
    module->functions.emplace(function.name, function);
  module->complete = !module->functions.empty();
  *out = module;
  return 0;
}

int find(void** out, void* handle, const char* name) {
  auto* module = (Module*)handle;
  auto found = module->functions.find(name);
  if (found == module->functions.end()) {
    if (module->complete) return CUDA_ERROR_NOT_FOUND;
    found = module->functions.emplace(name, Function{intern(name)}).first;
  }
  *out = &found->second;
  return 0;
}

int launch(const void* handle, dim3 grid, dim3 block, unsigned shared, CUstream stream, void** arguments,
           uint64_t entered, uint32_t correlation) {
  if (int error = init_context()) return error;
  if (!handle) return CUDA_ERROR_INVALID_HANDLE;
  return launch_function(*function_of(handle), grid, block, arguments, shared, stream_of(stream), entered,
                         correlation);
}

}  // namespace

// --- modules ---

EXPORT CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  DRIVER_CALL(cuModuleLoadData);
  return (CUresult)load((void**)module, image);
}

EXPORT CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*,
                                           void**) {
  DRIVER_CALL(cuModuleLoadDataEx);
  return (CUresult)load((void**)module, image);
}

EXPORT CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char*) {
  DRIVER_CALL(cuModuleLoad);
  return (CUresult)load((void**)module, nullptr);
}

// Graphs may still use functions of the module, so its memory is not freed.
EXPORT CUresult CUDAAPI cuModuleUnload(CUmodule) {
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  Lock lock(mu);
  return (CUresult)find((void**)function, module, name);
}

EXPORT CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* size, CUmodule, const char*) {
  constexpr size_t kVariableSize = 65536;
  void* memory;
  if (int error = dev_malloc(&memory, kVariableSize)) return (CUresult)error;
  *address = (CUdeviceptr)memory;
  if (size) *size = kVariableSize;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**,
                                          unsigned, CUlibraryOption*, void**, unsigned) {
  DRIVER_CALL(cuLibraryLoadData);
  return (CUresult)load((void**)library, image);
}

EXPORT CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  Lock lock(mu);
  return (CUresult)find((void**)kernel, library, name);
}

EXPORT CUresult CUDAAPI cuLibraryUnload(CUlibrary) {
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = (CUfunction)kernel;
  return CUDA_SUCCESS;
}

// --- attributes ---

static CUresult get_attribute(int* value, CUfunction_attribute attribute, const Function* function) {
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = std::min(function->max_threads, 65536 / std::max(1, function->registers) / 32 * 32);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = function->registers;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = function->static_shared;
      break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = model().major * 10 + model().minor;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function->dynamic_shared_limit >= 0 ? function->dynamic_shared_limit
                                                   : 49152 - function->static_shared;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

static CUresult set_attribute(Function* function, CUfunction_attribute attribute, int value) {
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value > model().shared_memory_optin - function->static_shared)
      return CUDA_ERROR_INVALID_VALUE;
    function->dynamic_shared_limit = value;
  }
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return get_attribute(value, attribute, function_of(function));
}

EXPORT CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return set_attribute(function_of(function), attribute, value);
}

EXPORT CUresult CUDAAPI cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                                             CUdevice) {
  return get_attribute(value, attribute, function_of(kernel));
}

EXPORT CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                             CUdevice) {
  return set_attribute(function_of(kernel), attribute, value);
}

EXPORT CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction function) {
  *name = function_of(function)->name;
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                                    int threads, size_t shared) {
  *blocks = occupancy(*function_of(function), threads, shared);
  return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                                             int threads, size_t shared,
                                                                             unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

EXPORT CUresult CUDAAPI cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  *clusters = model().multiprocessors / 2;
  return CUDA_SUCCESS;
}

// --- launches ---

EXPORT CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                       CUstream stream, void** arguments, void**) {
  uint64_t entered = now();
  DRIVER_CALL(cuLaunchKernel);
  return (CUresult)launch(function, dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z), shared,
                          stream, arguments, entered, api.correlation);
}

EXPORT CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                                  unsigned grid_z, unsigned block_x, unsigned block_y,
                                                  unsigned block_z, unsigned shared, CUstream stream,
                                                  void** arguments) {
  uint64_t entered = now();
  DRIVER_CALL(cuLaunchCooperativeKernel);
  return (CUresult)launch(function, dim3(grid_x, grid_y, grid_z), dim3(block_x, block_y, block_z), shared,
                          stream, arguments, entered, api.correlation);
}

EXPORT CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments,
                                         void**) {
  uint64_t entered = now();
  DRIVER_CALL(cuLaunchKernelEx);
  return (CUresult)launch(function, dim3(config->gridDimX, config->gridDimY, config->gridDimZ),
                          dim3(config->blockDimX, config->blockDimY, config->blockDimZ),
                          config->sharedMemBytes, config->hStream, arguments, entered, api.correlation);
}

EXPORT CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*,
                                               const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                               const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  memset(map, 0, sizeof *map);
  return CUDA_SUCCESS;
}
