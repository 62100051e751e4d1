// What collectives do to data: element types, and reductions that are really computed.
#pragma once

#include <nccl.h>
#include <stddef.h>

namespace sim {

size_t bytes_of(ncclDataType_t type);
// As the names of NCCL's kernels have it: f32, bf16, u8.
const char* name_of(ncclDataType_t type);

// Whether so many bytes of a rank are really moved. Kernels of the simulated device compute nothing, so that
// large tensors hold nothing worth moving; what programs tell each other (shapes, pickled objects, counts,
// small losses) does arrive.
bool is_moved(size_t bytes, ncclDataType_t type);

// into[i] = into[i] op from[i]; for ncclAvg the sum: `scale` divides it at the end.
void reduce(void* into, const void* from, size_t count, ncclDataType_t type, ncclRedOp_t op);
// data[i] *= factor.
void scale(void* data, size_t count, ncclDataType_t type, double factor);
// The scalar of ncclRedOpCreatePreMulSum.
double scalar_at(const void* scalar, ncclDataType_t type);

}  // namespace sim
