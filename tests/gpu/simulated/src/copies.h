// Copies and fills, for the runtime's and the driver's functions. Return CUDA error codes.
#pragma once

#include "timeline.h"

namespace sim {

// `entered` is when the call began: what a copy takes on the host counts from there.
int copy_memory(void* target, const void* source, size_t bytes, Stream* stream, bool asynchronous,
                uint64_t entered, uint32_t correlation);
int set_memory(void* target, int value, size_t bytes, Stream* stream, uint64_t entered, uint32_t correlation);

}  // namespace sim
