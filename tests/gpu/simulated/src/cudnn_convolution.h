// Convolutions: the cuDNN engines that support one, and the kernels that each launches.
#pragma once

#include <stdint.h>

#include <vector>

#include "cudnn_handle.h"

namespace sim {

enum class Pass { FORWARD, DATA, FILTER };

// Tensors have the same names in all passes: x is the input and y the output of the forward pass.
struct Convolution {
  Pass pass = Pass::FORWARD;
  CudnnTensor x, w, y;
  std::vector<int64_t> stride;
};

// An engine and the kernels that it launches for one convolution.
struct ConvolutionPlan {
  std::vector<LibraryKernel> kernels;
  int64_t workspace_bytes = 0;
  bool tensor_cores = false;

  double ns() const;
};

// The plans in the order in which the heuristic recommends them, limited to those that support the
// convolution's type and layout. If TF32 is not allowed, the caller removes the tensor-core plans.
std::vector<ConvolutionPlan> convolution_plans(const Convolution& convolution);

}  // namespace sim
