// cuBLAS: handles, and matrix multiplications of all types. Other functions are stubs that launch a kernel
// named after the function (see stubs.py).
#include <cublas_v2.h>

#include <algorithm>

#include "export.h"
#include "gemm.h"
#include "process.h"
#include "timeline.h"

using namespace sim;

namespace {

struct Handle {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

Handle* of(cublasHandle_t handle) {
  return (Handle*)handle;
}

// A matrix as passed to cuBLAS: `leading` is the leading dimension, and `stride` the distance between
// matrices of a batch, both in elements.
struct Matrix {
  const void* address;
  cudaDataType type;
  int leading;
  long long stride;
  int columns;
};

int alignment_of(const Matrix& matrix, int batch) {
  int64_t element = bytes_of(matrix.type);
  // With a single column, the leading dimension is never used.
  return alignment(matrix.address, matrix.columns > 1 ? matrix.leading * element : 0,
                   batch > 1 ? matrix.stride * element : 0);
}

struct Call {
  cublasOperation_t op_a, op_b;
  int rows, columns, depth, batch;
  bool tf32;
};

cublasStatus_t multiply(cublasHandle_t handle, const Call& call, Matrix a, Matrix b, Matrix c) {
  if (call.rows < 0 || call.columns < 0 || call.depth < 0 || call.batch < 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (call.rows == 0 || call.columns == 0 || call.batch == 0) return CUBLAS_STATUS_SUCCESS;
  a.columns = call.op_a == CUBLAS_OP_N ? call.depth : call.rows;
  b.columns = call.op_b == CUBLAS_OP_N ? call.columns : call.depth;
  c.columns = call.columns;
  Gemm gemm;
  gemm.size = {(double)call.rows, (double)call.columns, (double)call.depth, (double)call.batch};
  gemm.type = a.type;
  gemm.output = c.type;
  gemm.tf32 = call.tf32;
  gemm.transpose_a = call.op_a != CUBLAS_OP_N;
  gemm.transpose_b = call.op_b != CUBLAS_OP_N;
  gemm.aligned_bytes =
      std::min({alignment_of(a, call.batch), alignment_of(b, call.batch), alignment_of(c, call.batch)});
  return launch_kernels(of(handle)->stream, gemm_kernels(gemm)) ? CUBLAS_STATUS_EXECUTION_FAILED
                                                                : CUBLAS_STATUS_SUCCESS;
}

// PyTorch enables TF32 through the handle's math mode, and cublasGemmEx also through the compute type.
bool allows_tf32(cublasHandle_t handle, cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
  bool by_mode = compute == CUBLAS_COMPUTE_32F && (of(handle)->math & CUBLAS_TF32_TENSOR_OP_MATH);
  return compute == CUBLAS_COMPUTE_32F_FAST_TF32 || by_mode;
}

}  // namespace

EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (init_context()) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = (cublasHandle_t) new Handle;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete of(handle);
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  of(handle)->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  *stream = of(handle)->stream;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  of(handle)->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = of(handle)->math;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  of(handle)->pointers = mode;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = of(handle)->pointers;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetSmCountTarget(cublasHandle_t, int) {
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

#define MULTIPLICATIONS(LETTER, ELEMENT, TYPE)                                                               \
  EXPORT cublasStatus_t cublas##LETTER##gemm_v2(cublasHandle_t handle, cublasOperation_t op_a,               \
                                                cublasOperation_t op_b, int rows, int columns, int depth,    \
                                                const ELEMENT*, const ELEMENT* a, int lda, const ELEMENT* b, \
                                                int ldb, const ELEMENT*, ELEMENT* c, int ldc) {              \
    return multiply(handle, {op_a, op_b, rows, columns, depth, 1, allows_tf32(handle)},                      \
                    {a, TYPE, lda, 0, 0}, {b, TYPE, ldb, 0, 0}, {c, TYPE, ldc, 0, 0});                       \
  }                                                                                                          \
  EXPORT cublasStatus_t cublas##LETTER##gemmStridedBatched(                                                  \
      cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int rows, int columns,          \
      int depth, const ELEMENT*, const ELEMENT* a, int lda, long long stride_a, const ELEMENT* b, int ldb,   \
      long long stride_b, const ELEMENT*, ELEMENT* c, int ldc, long long stride_c, int batch) {              \
    return multiply(handle, {op_a, op_b, rows, columns, depth, batch, allows_tf32(handle)},                  \
                    {a, TYPE, lda, stride_a, 0}, {b, TYPE, ldb, stride_b, 0}, {c, TYPE, ldc, stride_c, 0});  \
  }                                                                                                          \
  EXPORT cublasStatus_t cublas##LETTER##gemmBatched(                                                         \
      cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int rows, int columns,          \
      int depth, const ELEMENT*, const ELEMENT* const*, int lda, const ELEMENT* const*, int ldb,             \
      const ELEMENT*, ELEMENT* const*, int ldc, int batch) {                                                 \
    return multiply(handle, {op_a, op_b, rows, columns, depth, batch, allows_tf32(handle)},                  \
                    {nullptr, TYPE, lda, 0, 0}, {nullptr, TYPE, ldb, 0, 0}, {nullptr, TYPE, ldc, 0, 0});     \
  }
MULTIPLICATIONS(S, float, CUDA_R_32F)
MULTIPLICATIONS(D, double, CUDA_R_64F)
MULTIPLICATIONS(C, cuComplex, CUDA_C_32F)
MULTIPLICATIONS(Z, cuDoubleComplex, CUDA_C_64F)
#undef MULTIPLICATIONS

EXPORT cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                                   int rows, int columns, int depth, const void*, const void* a,
                                   cudaDataType type_a, int lda, const void* b, cudaDataType type_b, int ldb,
                                   const void*, void* c, cudaDataType type_c, int ldc,
                                   cublasComputeType_t compute, cublasGemmAlgo_t) {
  return multiply(handle, {op_a, op_b, rows, columns, depth, 1, allows_tf32(handle, compute)},
                  {a, type_a, lda, 0, 0}, {b, type_b, ldb, 0, 0}, {c, type_c, ldc, 0, 0});
}

EXPORT cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                                    int rows, int columns, int depth, const float*, const void* a,
                                    cudaDataType type_a, int lda, const void* b, cudaDataType type_b, int ldb,
                                    const float*, void* c, cudaDataType type_c, int ldc) {
  return multiply(handle, {op_a, op_b, rows, columns, depth, 1, allows_tf32(handle)}, {a, type_a, lda, 0, 0},
                  {b, type_b, ldb, 0, 0}, {c, type_c, ldc, 0, 0});
}

EXPORT cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                                 cublasOperation_t op_b, int rows, int columns, int depth,
                                                 const void*, const void* a, cudaDataType type_a, int lda,
                                                 long long stride_a, const void* b, cudaDataType type_b,
                                                 int ldb, long long stride_b, const void*, void* c,
                                                 cudaDataType type_c, int ldc, long long stride_c, int batch,
                                                 cublasComputeType_t compute, cublasGemmAlgo_t) {
  return multiply(handle, {op_a, op_b, rows, columns, depth, batch, allows_tf32(handle, compute)},
                  {a, type_a, lda, stride_a, 0}, {b, type_b, ldb, stride_b, 0},
                  {c, type_c, ldc, stride_c, 0});
}

// Called by the stubs of stubs.py for cuBLAS routines without their own simulation: launches a kernel named
// after the routine.
EXPORT int simgpu_blas_launch(cublasHandle_t handle, const char* name) {
  int error = launch_named(of(handle)->stream, name, duration(5000), dim3(32), dim3(128));
  return error ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
