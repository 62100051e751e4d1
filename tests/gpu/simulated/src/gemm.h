// Matrix multiplications as launched by cuBLAS, cuBLASLt and cuDNN: kernel choice, kernel name and duration.
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

// Launches the kernels in order. Returns a CUDA error code.
int launch_kernels(cudaStream_t stream, const std::vector<LibraryKernel>& kernels);

// C = A · B in column-major order; A is rows × depth, B is depth × columns.
struct Gemm {
  GemmShape size;
  cudaDataType type;    // of A and B
  cudaDataType output;  // of C
  bool tf32 = false;    // FP32 inputs may be rounded to TF32
  bool transpose_a = false, transpose_b = false;
  bool bias = false;       // the epilogue adds a bias
  int aligned_bytes = 16;  // alignment of the rows of A, B and C, as far as kernels make use of it
};

// The alignment in bytes (at most 16) of the address and of all multiples of the strides (in bytes).
int alignment(const void* address, int64_t leading_bytes, int64_t batch_bytes);

int bytes_of(cudaDataType type);

// One kernel, or two for split-K.
std::vector<LibraryKernel> gemm_kernels(const Gemm& gemm);

}  // namespace sim
