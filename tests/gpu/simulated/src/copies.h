// Copies and fills, shared by the runtime and driver APIs. Functions return CUDA error codes.
#pragma once

#include "timeline.h"

namespace sim {

// `entered` is the time at which the API call began. The host time of the copy is measured from there.
int copy_memory(void* target, const void* source, size_t bytes, Stream* stream, bool asynchronous,
                uint64_t entered, uint32_t correlation);
int set_memory(void* target, int value, size_t bytes, Stream* stream, uint64_t entered, uint32_t correlation);

}  // namespace sim
