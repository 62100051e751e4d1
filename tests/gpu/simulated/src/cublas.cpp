// cuBLAS.
#include <cublas_v2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include "cost_model.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "gemm.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"
using namespace sim;
#undef cublasCreate
struct Blas {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};
static Blas* of(cublasHandle_t h) {
  return (Blas*)h;
}
#define B(...) EXPORT cublasStatus_t __VA_ARGS__
#define GOOD CUBLAS_STATUS_SUCCESS
B(cublasCreate_v2(cublasHandle_t* h)) {
  if (init_context()) return CUBLAS_STATUS_NOT_INITIALIZED;
  *h = (cublasHandle_t) new Blas;
  return GOOD;
}
B(cublasDestroy_v2(cublasHandle_t h)) {
  delete of(h);
  return GOOD;
}
B(cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)) {
  of(h)->stream = s;
  return GOOD;
}
B(cublasGetStream_v2(cublasHandle_t h, cudaStream_t* s)) {
  *s = of(h)->stream;
  return GOOD;
}
B(cublasSetWorkspace_v2(cublasHandle_t, void*, size_t)) {
  return GOOD;
}
B(cublasSetMathMode(cublasHandle_t h, cublasMath_t m)) {
  of(h)->math = m;
  return GOOD;
}
B(cublasGetMathMode(cublasHandle_t h, cublasMath_t* m)) {
  *m = of(h)->math;
  return GOOD;
}
B(cublasSetPointerMode_v2(cublasHandle_t h, cublasPointerMode_t m)) {
  of(h)->pointers = m;
  return GOOD;
}
B(cublasGetPointerMode_v2(cublasHandle_t h, cublasPointerMode_t* m)) {
  *m = of(h)->pointers;
  return GOOD;
}
B(cublasSetSmCountTarget(cublasHandle_t, int)) {
  return GOOD;
}
B(cublasGetVersion_v2(cublasHandle_t, int* v)) {
  *v = 130401;
  return GOOD;
}
static bool tf(cublasHandle_t h, cublasComputeType_t c = CUBLAS_COMPUTE_32F) {
  return c == CUBLAS_COMPUTE_32F_FAST_TF32 || (of(h)->math & CUBLAS_TF32_TENSOR_OP_MATH);
}
#define GEMM(L, T, dt)                                                                                     \
  B(cublas##L##gemm_v2(cublasHandle_t h, cublasOperation_t, cublasOperation_t, int m, int n, int k,        \
                       const T*, const T*, int, const T*, int, const T*, T*, int)) {                       \
    launch_gemm(of(h)->stream, m, n, k, 1, dt, tf(h));                                                     \
    return GOOD;                                                                                           \
  }                                                                                                        \
  B(cublas##L##gemmStridedBatched(cublasHandle_t h, cublasOperation_t, cublasOperation_t, int m, int n,    \
                                  int k, const T*, const T*, int, long long, const T*, int, long long,     \
                                  const T*, T*, int, long long, int b)) {                                  \
    launch_gemm(of(h)->stream, m, n, k, b, dt, tf(h));                                                     \
    return GOOD;                                                                                           \
  }                                                                                                        \
  B(cublas##L##gemmBatched(cublasHandle_t h, cublasOperation_t, cublasOperation_t, int m, int n, int k,    \
                           const T*, const T* const*, int, const T* const*, int, const T*, T* const*, int, \
                           int b)) {                                                                       \
    launch_gemm(of(h)->stream, m, n, k, b, dt, tf(h));                                                     \
    return GOOD;                                                                                           \
  }
GEMM(S, float, CUDA_R_32F)
GEMM(D, double, CUDA_R_64F) GEMM(C, cuComplex, CUDA_C_32F) GEMM(Z, cuDoubleComplex, CUDA_C_64F)
    B(cublasGemmEx(cublasHandle_t h, cublasOperation_t, cublasOperation_t, int m, int n, int k, const void*,
                   const void*, cudaDataType t, int, const void*, cudaDataType, int, const void*, void*,
                   cudaDataType, int, cublasComputeType_t c, cublasGemmAlgo_t)) {
  launch_gemm(of(h)->stream, m, n, k, 1, t, tf(h, c));
  return GOOD;
}
B(cublasSgemmEx(cublasHandle_t h, cublasOperation_t, cublasOperation_t, int m, int n, int k, const float*,
                const void*, cudaDataType t, int, const void*, cudaDataType, int, const float*, void*,
                cudaDataType, int)) {
  launch_gemm(of(h)->stream, m, n, k, 1, t, tf(h));
  return GOOD;
}
B(cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                             const void*, const void*, cudaDataType t, int, long long, const void*,
                             cudaDataType, int, long long, const void*, void*, cudaDataType, int, long long,
                             int b, cublasComputeType_t c, cublasGemmAlgo_t)) {
  launch_gemm(of(h)->stream, m, n, k, b, t, tf(h, c));
  return GOOD;
}
EXPORT int simgpu_blas_launch(cublasHandle_t h, const char* name) {
  launch_named(of(h)->stream, name, 5000, dim3(32), dim3(128));
  return 0;
}
