// The matrix multiplication that cuBLAS and cuBLASLt launch.
#include "gemm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include "cost_model.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"
namespace sim {
static int bits(cudaDataType t) {
  switch (t) {
    case CUDA_R_64F:
    case CUDA_C_64F:
      return 64;
    case CUDA_R_32F:
    case CUDA_C_32F:
      return 32;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 16;
    default:
      return 8;
  }
}
void launch_gemm(cudaStream_t s, double m, double n, double k, double b, cudaDataType t, bool tf32) {
  int w = bits(t);
  char name[160];
  const char* arch = model().major >= 9 ? "sm90_xmma" : "ampere";
  const char* kind = t == CUDA_R_16BF  ? "bf16bf16_bf16f32_f32"
                     : t == CUDA_R_16F ? "f16f16_f16f32_f32"
                     : w == 64         ? "d884"
                     : w == 8          ? "e4m3e4m3_e4m3f32_f32"
                     : tf32            ? "f32f32_tf32f32_f32"
                                       : "f32f32_f32f32_f32";
  if (w == 32 && !tf32)
    snprintf(name, sizeof name, "%s",
             model().major >= 9 ? "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_stage3_"
                                  "warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas"
                                : "ampere_sgemm_128x128_nn");
  else
    snprintf(name, sizeof name,
             "%s_gemm_%s_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
             arch, kind);
  if (getenv("SIMGPU_NVJET") && w == 16)
    snprintf(name, sizeof name, "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT");
  unsigned gx = std::max(1., (m + 127) / 128), gy = std::max(1., (n + 127) / 128);
  launch_named(s, intern(name), gemm_ns(m, n, k, b, w, tf32), dim3(gx, gy, std::max(1., std::min(b, 65535.))),
               dim3(w == 32 && !tf32 ? 256 : 384), CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060);
}
}  // namespace sim
