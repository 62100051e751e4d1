#include "errors.h"

#include <cuda.h>
#include <stdio.h>

#include <atomic>

#include "errors.inc"
#include "export.h"
#include "timeline.h"

namespace sim {

static thread_local int last_error = 0;
static std::atomic<int> asynchronous_error{0};
static std::atomic<uint64_t> asynchronous_error_at{0};
static std::atomic<const char*> asynchronous_message{nullptr};

cudaError_t fail(int error) {
  // cudaErrorNotReady is a status, not a failure: cudaGetLastError does not return it.
  if (error && error != cudaErrorNotReady) {
    last_error = error;
    log("error %d", error);
  }
  return (cudaError_t)error;
}

void fail_asynchronously(int error, uint64_t at, const char* message) {
  Lock lock(mu);
  if (asynchronous_error) return;
  asynchronous_error_at = at;
  asynchronous_message = message;
  asynchronous_error = error;
}

int sticky_error() {
  if (!asynchronous_error || now() < asynchronous_error_at) return 0;
  // Device-side output is printed at the next synchronization.
  if (const char* message = asynchronous_message.exchange(nullptr)) fprintf(stderr, "%s\n", message);
  return asynchronous_error;
}

bool failed_before(uint64_t at) {
  return asynchronous_error && at >= asynchronous_error_at;
}

static const ErrorText* find_error(int code) {
  for (const ErrorText& each : error_texts)
    if (each.code == code) return &each;
  return nullptr;
}

}  // namespace sim

using namespace sim;

EXPORT cudaError_t CUDARTAPI cudaGetLastError() {
  int error = sticky_error();
  if (!error) error = last_error;
  last_error = 0;
  return (cudaError_t)error;
}

EXPORT cudaError_t CUDARTAPI cudaPeekAtLastError() {
  int error = sticky_error();
  return (cudaError_t)(error ? error : last_error);
}

EXPORT const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  const ErrorText* found = find_error(error);
  return found ? found->runtime_name : "cudaErrorUnknown";
}

EXPORT const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  const ErrorText* found = find_error(error);
  return found ? found->text : "unrecognized error code";
}

EXPORT CUresult CUDAAPI cuGetErrorName(CUresult error, const char** name) {
  const ErrorText* found = find_error(error);
  *name = found && *found->driver_name ? found->driver_name : nullptr;
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
  const ErrorText* found = find_error(error);
  *text = found && *found->driver_name ? found->text : nullptr;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
