// Fused attention: the kernels of cuDNN's flash attention.
#pragma once

#include <vector>

#include "cudnn_handle.h"

namespace sim {

// Dimensions of queries and keys: batch, heads, sequence length, head size.
struct Attention {
  CudnnTensor queries, keys, values;
  bool backward = false;
  bool causal = false;  // half of the scores are skipped
};

std::vector<LibraryKernel> attention_kernels(const Attention& attention);

}  // namespace sim
