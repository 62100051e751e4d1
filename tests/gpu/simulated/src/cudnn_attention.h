// Fused attention: the kernels of cuDNN's flash attention.
#pragma once

#include <vector>

#include "cudnn_handle.h"

namespace sim {

// Sizes of queries and keys are batch, heads, length, size of a head.
struct Attention {
  CudnnTensor queries, keys, values;
  bool backward = false;
  bool causal = false;  // half of the scores are left out
};

std::vector<LibraryKernel> attention_kernels(const Attention& attention);

}  // namespace sim
