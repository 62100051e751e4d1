// cuBLASLt: matmul and matrix-layout descriptors, a heuristic that returns one algorithm, and the matmul
// itself.
#include <cublasLt.h>
#include <string.h>

#include <algorithm>

#include "export.h"
#include "gemm.h"

using namespace sim;

namespace {

struct Layout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batch = 1;
  int64_t stride = 0;
};

struct Description {
  cublasComputeType_t compute;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};

Layout* layout_of(cublasLtMatrixLayout_t layout) {
  return (Layout*)layout;
}

int alignment_of(const void* address, const Layout& layout) {
  int64_t element = bytes_of(layout.type);
  return alignment(address, layout.columns > 1 ? layout.leading * element : 0,
                   layout.batch > 1 ? layout.stride * element : 0);
}

// Copies a caller's attribute value into a field, up to the smaller of the two sizes.
template <class T>
void assign(T& field, const void* value, size_t bytes) {
  memcpy(&field, value, std::min(bytes, sizeof field));
}

}  // namespace

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static char one;  // the handle has no state
  *handle = (cublasLtHandle_t)&one;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                               cudaDataType) {
  *description = (cublasLtMatmulDesc_t) new Description{compute};
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete (Description*)description;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of,
                                                     cublasLtMatmulDescAttributes_t attribute,
                                                     const void* value, size_t bytes) {
  auto* description = (Description*)of;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) assign(description->transpose_a, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) assign(description->transpose_b, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) assign(description->epilogue, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = (cublasLtMatrixLayout_t) new Layout{type, rows, columns, leading};
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout_of(layout);
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t attribute,
                                                       const void* value, size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) assign(layout_of(layout)->batch, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    assign(layout_of(layout)->stride, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  static char one;  // preferences do not affect the choice of algorithm
  *preference = (cublasLtMatmulPreference_t)&one;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                           cublasLtMatmulPreferenceAttributes_t, const void*,
                                                           size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatmulPreference_t, int capacity,
                                                     cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = capacity > 0;
  if (capacity > 0) {
    memset(results, 0, sizeof *results);
    results->state = CUBLAS_STATUS_SUCCESS;
    results->wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t, cudaDataType_t,
                                             cudaDataType_t, cudaDataType_t, cudaDataType_t, cudaDataType_t,
                                             int, cublasLtMatmulAlgo_t* algorithm) {
  memset(algorithm, 0, sizeof *algorithm);
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*,
                                              cublasLtMatmulHeuristicResult_t* result) {
  memset(result, 0, sizeof *result);
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t*,
                                                           cublasLtMatmulAlgoConfigAttributes_t, const void*,
                                                           size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*,
                                                           cublasLtMatmulAlgoConfigAttributes_t, void* value,
                                                           size_t bytes, size_t* written) {
  memset(value, 0, bytes);
  if (written) *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t of, const void*, const void* a,
                                     cublasLtMatrixLayout_t a_layout, const void* b,
                                     cublasLtMatrixLayout_t b_layout, const void*, const void*,
                                     cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                                     const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
  const Description& description = *(const Description*)of;
  const Layout &left = *layout_of(a_layout), &right = *layout_of(b_layout), &result = *layout_of(d_layout);
  Gemm gemm;
  gemm.transpose_a = description.transpose_a != CUBLAS_OP_N;
  gemm.transpose_b = description.transpose_b != CUBLAS_OP_N;
  gemm.size = {(double)result.rows, (double)result.columns,
               (double)(gemm.transpose_a ? left.rows : left.columns), (double)result.batch};
  gemm.type = left.type;
  gemm.output = result.type;
  gemm.tf32 = description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  gemm.bias = description.epilogue & CUBLASLT_EPILOGUE_BIAS;
  gemm.aligned_bytes = std::min({alignment_of(a, left), alignment_of(b, right), alignment_of(d, result)});
  return launch_kernels(stream, gemm_kernels(gemm)) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
