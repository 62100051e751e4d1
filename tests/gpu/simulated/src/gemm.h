// What cuBLAS and cuBLASLt share: the matrix multiplication that both launch.
#pragma once

#include <cublas_v2.h>

namespace sim {

// Launches (m × k) · (k × n), `batch` times, of the type.
void launch_gemm(cudaStream_t stream, double m, double n, double k, double batch, cudaDataType type,
                 bool tf32);

}  // namespace sim
