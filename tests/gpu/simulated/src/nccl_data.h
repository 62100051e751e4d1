// Data of collectives: element types, and the reductions that are actually computed.
#pragma once

#include <nccl.h>
#include <stddef.h>

namespace sim {

size_t bytes_of(ncclDataType_t type);
// The type's name in NCCL kernel names: f32, bf16, u8.
const char* name_of(ncclDataType_t type);

// Whether data of this size is actually transferred. Simulated kernels compute nothing, so large tensors hold
// nothing of interest. Control data that ranks exchange (shapes, pickled objects, counts, small losses) is
// transferred.
bool is_transferred(size_t bytes, ncclDataType_t type);

// into[i] = into[i] op from[i]. For ncclAvg it computes the sum, and `scale` divides it at the end.
void reduce(void* into, const void* from, size_t count, ncclDataType_t type, ncclRedOp_t op);
// data[i] *= factor.
void scale(void* data, size_t count, ncclDataType_t type, double factor);
// Reads the scalar of ncclRedOpCreatePreMulSum.
double scalar_at(const void* scalar, ncclDataType_t type);

}  // namespace sim
