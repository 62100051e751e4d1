// cuBLASLt.
#include <cublasLt.h>
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
#define B(...) EXPORT cublasStatus_t __VA_ARGS__
#define GOOD CUBLAS_STATUS_SUCCESS
struct LtHandle {};
struct Layout {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batch = 1;
};
struct Desc {
  cublasComputeType_t compute;
  cudaDataType scale;
  int ta = 0, tb = 0;
};
B(cublasLtCreate(cublasLtHandle_t* h)) {
  *h = (cublasLtHandle_t) new LtHandle;
  return GOOD;
}
EXPORT size_t cublasLtGetVersion() {
  return 130401;
}
B(cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t c, cudaDataType s)) {
  *d = (cublasLtMatmulDesc_t) new Desc{c, s};
  return GOOD;
}
B(cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)) {
  delete (Desc*)d;
  return GOOD;
}
B(cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void* v,
                                 size_t)) {
  if (a == CUBLASLT_MATMUL_DESC_TRANSA) ((Desc*)d)->ta = *(int*)v;
  if (a == CUBLASLT_MATMUL_DESC_TRANSB) ((Desc*)d)->tb = *(int*)v;
  return GOOD;
}
B(cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType t, uint64_t r, uint64_t c, int64_t ld)) {
  *l = (cublasLtMatrixLayout_t) new Layout{t, r, c, ld};
  return GOOD;
}
B(cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)) {
  delete (Layout*)l;
  return GOOD;
}
B(cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a, const void* v,
                                   size_t)) {
  if (a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) ((Layout*)l)->batch = *(int32_t*)v;
  return GOOD;
}
B(cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p)) {
  *p = (cublasLtMatmulPreference_t) new int;
  return GOOD;
}
B(cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)) {
  delete (int*)p;
  return GOOD;
}
B(cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                       const void*, size_t)) {
  return GOOD;
}
B(cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                 cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                 cublasLtMatmulPreference_t, int n, cublasLtMatmulHeuristicResult_t* r,
                                 int* got)) {
  *got = n > 0;
  if (n > 0) {
    memset(r, 0, sizeof *r);
    r->state = GOOD;
    r->wavesCount = 1;
  }
  return GOOD;
}
B(cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t, cudaDataType_t, cudaDataType_t,
                         cudaDataType_t, cudaDataType_t, cudaDataType_t, int, cublasLtMatmulAlgo_t* a)) {
  memset(a, 0, sizeof *a);
  return GOOD;
}
B(cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                          const cublasLtMatmulAlgo_t*, cublasLtMatmulHeuristicResult_t* r)) {
  memset(r, 0, sizeof *r);
  return GOOD;
}
B(cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t,
                                       const void*, size_t)) {
  return GOOD;
}
B(cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t,
                                       void* v, size_t n, size_t* w)) {
  memset(v, 0, n);
  if (w) *w = n;
  return GOOD;
}
B(cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void*, const void*, cublasLtMatrixLayout_t A,
                 const void*, cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t, void*,
                 cublasLtMatrixLayout_t D, const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t s)) {
  auto *a = (Layout*)A, *o = (Layout*)D;
  auto* e = (Desc*)d;
  double k = e->ta ? a->rows : a->cols;
  launch_gemm(s, o->rows, o->cols, k, o->batch, a->type, e->compute == CUBLAS_COMPUTE_32F_FAST_TF32);
  return GOOD;
}
