// Activity records for the profiler: API calls, kernels, copies, synchronizations.
#pragma once

#include <cupti.h>
#include <stdint.h>

#include "timeline.h"

namespace sim {

// A CUDA API call, from entry to return. As in CUPTI, nested calls are not reported and share the outer
// call's correlation id.
struct Api {
  Api(CUpti_CallbackDomain domain, uint32_t callback_id);
  ~Api();
  Api(const Api&) = delete;
  uint32_t correlation;
  bool outer, recorded;
  CUpti_CallbackDomain domain;
  uint32_t callback_id;
  uint64_t start;
};

void record_op(const Op& op, int device, uint32_t stream, uint32_t correlation, uint64_t start, uint64_t end);
void record_sync(CUpti_ActivitySynchronizationType type, uint32_t correlation, uint32_t stream,
                 uint32_t event, uint64_t start, uint64_t end);

}  // namespace sim

#define RUNTIME_CALL(name) sim::Api api(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_##name)
#define DRIVER_CALL(name) sim::Api api(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_##name)
