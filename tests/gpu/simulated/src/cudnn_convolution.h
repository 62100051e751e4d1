// Convolutions: the engines that cuDNN has for one, and the kernels that each launches.
#pragma once

#include <stdint.h>

#include <vector>

#include "cudnn_handle.h"

namespace sim {

enum class Pass { FORWARD, DATA, FILTER };

// The tensors keep their names in all passes: x and y are what a forward pass is given and gives.
struct Convolution {
  Pass pass = Pass::FORWARD;
  CudnnTensor x, w, y;
  std::vector<int64_t> stride;
};

// An engine with all that it does for one convolution.
struct ConvolutionPlan {
  std::vector<LibraryKernel> kernels;
  int64_t workspace_bytes = 0;
  bool tensor_cores = false;

  double ns() const;
};

// In the order in which the heuristic recommends them. What the convolution's type and layout allow: the
// caller leaves out tensor cores where TF32 is not wanted.
std::vector<ConvolutionPlan> convolution_plans(const Convolution& convolution);

}  // namespace sim
