// Matrix multiplications as cuBLAS, cuBLASLt and cuDNN launch them: which kernel, under which name, for how
// long.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "cost_model.h"

namespace sim {

// A kernel that a library launches.
struct LibraryKernel {
  std::string name;
  double ns;
  dim3 grid, block;
  uint32_t registers = 128, shared = 0;
};

// Launches them one after the other. Returns a CUDA error code.
int launch_kernels(cudaStream_t stream, const std::vector<LibraryKernel>& kernels);

// C = A · B in column-major order; A is rows × depth, B is depth × columns.
struct Gemm {
  Product size;
  cudaDataType type;    // of A and B
  cudaDataType output;  // of C
  bool tf32 = false;    // factors of FP32 may be rounded to TF32
  bool transpose_a = false, transpose_b = false;
  bool bias = false;       // an epilogue adds one
  int aligned_bytes = 16;  // of the rows of A, B and C, as far as kernels can make use of it
};

// How many bytes, 16 at the most, the address and all multiples of the strides (in bytes) are aligned to.
int alignment(const void* address, int64_t leading_bytes, int64_t batch_bytes);

int bytes_of(cudaDataType type);

// One kernel, or two where the depth is divided among blocks.
std::vector<LibraryKernel> gemm_kernels(const Gemm& gemm);

}  // namespace sim
