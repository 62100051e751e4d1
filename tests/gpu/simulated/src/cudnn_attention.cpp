#include "cudnn_attention.h"

#include <stdio.h>

#include <algorithm>
#include <cmath>

#include "device_model.h"

namespace sim {

// Calibration: with batch 8, 12 heads, 4,096 tokens, head size 128 and a causal mask, an H200 takes 0.71 ms
// forward (580 TFLOP/s) and 2.96 ms backward (348 TFLOP/s).
std::vector<LibraryKernel> attention_kernels(const Attention& attention) {
  double batch = attention.queries.sizes[0], heads = attention.queries.sizes[1],
         queries = attention.queries.sizes[2];
  double size = attention.queries.sizes[3], keys = attention.keys.sizes[2],
         value_size = attention.values.sizes[3];
  double pairs = batch * heads * queries * keys * (attention.causal ? 0.5 : 1);
  // Forward computes the scores and the weighted sum of the values. Backward recomputes the scores and
  // computes the gradients of scores, queries, keys and values.
  double flops =
      attention.backward ? 2 * pairs * (3 * size + 2 * value_size) : 2 * pairs * (size + value_size);
  bool hopper = has_wgmma();
  double efficiency = attention.backward ? (hopper ? 0.36 : 0.55) : (hopper ? 0.59 : 0.70);
  int rows = attention.backward ? 64 : hopper ? 128 : 64;
  dim3 grid(std::max(1.0, std::ceil((attention.backward ? keys : queries) / rows)), (unsigned)heads,
            (unsigned)batch);
  double blocks = (double)grid.x * grid.y * grid.z, waves = std::ceil(blocks / model().multiprocessors);
  double filled = std::max(0.05, blocks / (waves * model().multiprocessors));
  double ns = GEMM_OVERHEAD_NS + 1e9 * flops / (peak_flops(Unit::HALF) * efficiency * filled);

  char name[160];
  int head_size = size <= 64 ? 64 : 128;
  if (hopper && attention.backward)
    snprintf(name, sizeof name,
             "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x%d_1x1x1_kernel0_0",
             head_size);
  else if (hopper)
    snprintf(name, sizeof name,
             "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x%d_4x1x1_kernel0_0",
             head_size);
  else
    snprintf(name, sizeof name,
             "cudnn_generated_fort_native_sdpa_sm80_flash_%s_f16_knob_3_64x64x%d_4x1x1_kernel0_0",
             attention.backward ? "bprop" : "fprop", head_size);
  LibraryKernel kernel{name, ns, grid, dim3(hopper ? 384 : 128), 168, 200000};
  if (!attention.backward) return {kernel};
  // Backward also runs a kernel before, which sums output times gradient per query, and one after, which
  // converts the query gradients from FP32.
  double elements = attention.queries.elements(), bytes = attention.queries.bytes();
  return {memory_kernel(
              "void cudnn::fusion::compute_dot_do_o_specialized<true, 128>(void const*, void const*, float*)",
              2 * bytes, elements),
          kernel,
          memory_kernel("void cudnn::fusion::convert_dq_to_16bits<true, 128>(void*, float const*)",
                        elements * 4 + bytes, elements)};
}

}  // namespace sim
