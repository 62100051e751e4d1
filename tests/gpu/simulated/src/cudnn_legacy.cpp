// cuDNN's legacy API: each operation is one named launch.
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <vector>
#include "cost_model.h"
#include "cudnn_handle.h"
#include "cupti.h"
#include "device_model.h"
#include "errors.h"
#include "export.h"
#include "memory.h"
#include "process.h"
#include "timeline.h"
using namespace sim;
namespace sim {
void launch_cudnn(cudnnHandle_t h, const char* name, double ns, double threads) {
  launch_named(((CudnnHandle*)h)->stream, intern(name), (uint64_t)ns + 2000,
               dim3(std::max(1., std::min(threads / 256, 1e6))), dim3(256));
}
}  // namespace sim

#define U(...) EXPORT cudnnStatus_t CUDNNWINAPI __VA_ARGS__
#define FINE CUDNN_STATUS_SUCCESS
struct Obj {
  std::vector<int> dims, strides;
  int type = 0;
  int groups = 1, math = 0;
  std::vector<int> pad, stride, dil;
  int in = 0, hidden = 0, proj = 0, layers = 1, dirs = 1, mode = 0, seq = 0, batch = 0, vec = 0, bias = 2;
};
static Obj* o(const void* p) {
  return (Obj*)p;
}
static double count(const Obj* x) {
  double n = 1;
  for (int d : x->dims) n *= d;
  return n;
}
static int width(int t) {
  return t == CUDNN_DATA_DOUBLE ? 8 : t == CUDNN_DATA_FLOAT ? 4 : 2;
}
EXPORT size_t cudnnGetVersion() {
  return CUDNN_VERSION;
}
EXPORT size_t cudnnGetCudartVersion() {
  return 13020;
}
EXPORT const char* cudnnGetErrorString(cudnnStatus_t s) {
  return s ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_SUCCESS";
}
EXPORT void cudnnGetLastErrorString(char* s, size_t n) {
  if (n) *s = 0;
}
U(cudnnGetProperty(libraryPropertyType t, int* v)) {
  *v = t == MAJOR_VERSION ? CUDNN_MAJOR : t == MINOR_VERSION ? CUDNN_MINOR : CUDNN_PATCHLEVEL;
  return FINE;
}
U(cudnnCreate(cudnnHandle_t* h)) {
  if (init_context()) return CUDNN_STATUS_NOT_INITIALIZED;
  *h = (cudnnHandle_t) new CudnnHandle;
  return FINE;
}
U(cudnnDestroy(cudnnHandle_t h)) {
  delete (CudnnHandle*)h;
  return FINE;
}
U(cudnnSetStream(cudnnHandle_t h, cudaStream_t s)) {
  ((CudnnHandle*)h)->stream = s;
  return FINE;
}
U(cudnnGetStream(cudnnHandle_t h, cudaStream_t* s)) {
  *s = ((CudnnHandle*)h)->stream;
  return FINE;
}
#define OBJ(N)                                               \
  U(cudnnCreate##N##Descriptor(cudnn##N##Descriptor_t* d)) { \
    *d = (cudnn##N##Descriptor_t) new Obj;                   \
    return FINE;                                             \
  }                                                          \
  U(cudnnDestroy##N##Descriptor(cudnn##N##Descriptor_t d)) { \
    delete o(d);                                             \
    return FINE;                                             \
  }
OBJ(Tensor)
OBJ(Filter) OBJ(Convolution) OBJ(Activation) OBJ(Dropout) OBJ(RNN) OBJ(RNNData) OBJ(Pooling) OBJ(CTCLoss)
    OBJ(SpatialTransformer) U(cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t t, int n,
                                                         const int* a, const int* s)) {
  o(d)->type = t;
  o(d)->dims.assign(a, a + n);
  o(d)->strides.assign(s, s + n);
  return FINE;
}
U(cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t d, int room, cudnnDataType_t* t, int* n, int* a,
                             int* s)) {
  *t = (cudnnDataType_t)o(d)->type;
  *n = o(d)->dims.size();
  for (int i = 0; i < *n && i < room; i++) {
    a[i] = o(d)->dims[i];
    s[i] = i < (int)o(d)->strides.size() ? o(d)->strides[i] : 1;
  }
  return FINE;
}
U(cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t t, cudnnTensorFormat_t, int n,
                             const int* a)) {
  o(d)->type = t;
  o(d)->dims.assign(a, a + n);
  return FINE;
}
U(cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t d, int room, cudnnDataType_t* t,
                             cudnnTensorFormat_t* f, int* n, int* a)) {
  *t = (cudnnDataType_t)o(d)->type;
  *f = CUDNN_TENSOR_NCHW;
  *n = o(d)->dims.size();
  for (int i = 0; i < *n && i < room; i++) a[i] = o(d)->dims[i];
  return FINE;
}
U(cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int n, const int* p, const int* s,
                                  const int* l, cudnnConvolutionMode_t, cudnnDataType_t t)) {
  o(d)->pad.assign(p, p + n);
  o(d)->stride.assign(s, s + n);
  o(d)->dil.assign(l, l + n);
  o(d)->type = t;
  return FINE;
}
U(cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int g)) {
  o(d)->groups = g;
  return FINE;
}
U(cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t m)) {
  o(d)->math = m;
  return FINE;
}
U(cudnnSetActivationDescriptor(cudnnActivationDescriptor_t, cudnnActivationMode_t, cudnnNanPropagation_t,
                               double)) {
  return FINE;
}
U(cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t, cudnnPoolingMode_t, cudnnNanPropagation_t, int, int,
                              int, int, int, int)) {
  return FINE;
}
// convolutions
template <class P>
static void perf(P* r, int algo, int n, int* got) {
  *got = n > 0;
  if (n > 0) {
    memset(r, 0, sizeof *r);
    r->algo = (decltype(r->algo))algo;
    r->status = FINE;
    r->time = 0.01f;
    r->memory = 0;
    r->mathType = CUDNN_DEFAULT_MATH;
  }
}
#define CONV(A, W, T1, T2, T3, R, AL)                                                                        \
  U(cudnnGetConvolution##A##Algorithm_v7(cudnnHandle_t, T1, T2, const cudnnConvolutionDescriptor_t, T3,      \
                                         const int n, int* got, R* r)) {                                     \
    perf(r, 1, n, got);                                                                                      \
    return FINE;                                                                                             \
  }                                                                                                          \
  U(cudnnGetConvolution##A##WorkspaceSize(cudnnHandle_t, T1, T2, const cudnnConvolutionDescriptor_t, T3, AL, \
                                          size_t* n)) {                                                      \
    *n = 0;                                                                                                  \
    return FINE;                                                                                             \
  }
#define TD const cudnnTensorDescriptor_t
#define FD const cudnnFilterDescriptor_t
CONV(Forward, x, TD, FD, TD, cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t)
CONV(BackwardData, x, FD, TD, TD, cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t)
CONV(BackwardFilter, x, TD, TD, FD, cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t)
static void conv(cudnnHandle_t h, const char* what, TD y, FD w, const cudnnConvolutionDescriptor_t c) {
  double k = count(o(w)) / o(w)->dims[0], m = count(o(y)) / o(y)->dims[1], n = o(w)->dims[0];
  int b = width(o(w)->type) * 8;
  bool tf = b == 32 && o(c)->math != CUDNN_FMA_MATH;
  char name[160];
  const char* t = b == 16 ? "f16f16_f16f32_f32" : tf ? "tf32f32_tf32f32_f32" : "f32f32_f32f32_f32";
  snprintf(name, sizeof name,
           "sm80_xmma_%s_implicit_gemm_%s_%s_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_%s_"
           "execute_kernel__5x_cudnn",
           what, o(c)->groups > 1 ? "indexed" : "indexed", t, b == 32 && !tf ? "ffma" : "tensor16x8x8");
  launch_cudnn(h, name, gemm_ns(m, n, k, 1, b, tf), m * n / 64);
}
U(cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t h, TD, const void*, FD w, const void*,
                                         const cudnnConvolutionDescriptor_t c, TD y, void*, const int n,
                                         int* got, cudnnConvolutionFwdAlgoPerf_t* r, void*, size_t)) {
  for (int i = 0; i < 5; i++) conv(h, "fprop", y, w, c);
  perf(r, 1, n, got);
  return FINE;
}
U(cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnHandle_t h, FD w, const void*, TD y, const void*,
                                              const cudnnConvolutionDescriptor_t c, TD, void*, const int n,
                                              int* got, cudnnConvolutionBwdDataAlgoPerf_t* r, void*,
                                              size_t)) {
  for (int i = 0; i < 5; i++) conv(h, "dgrad", y, w, c);
  perf(r, 1, n, got);
  return FINE;
}
U(cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnnHandle_t h, TD, const void*, TD y, const void*,
                                                const cudnnConvolutionDescriptor_t c, FD w, void*,
                                                const int n, int* got, cudnnConvolutionBwdFilterAlgoPerf_t* r,
                                                void*, size_t)) {
  for (int i = 0; i < 5; i++) conv(h, "wgrad", y, w, c);
  perf(r, 1, n, got);
  return FINE;
}
U(cudnnConvolutionForward(cudnnHandle_t h, const void*, TD, const void*, FD w, const void*,
                          const cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t, void*, size_t,
                          const void*, TD y, void*)) {
  conv(h, "fprop", y, w, c);
  return FINE;
}
U(cudnnConvolutionBackwardData(cudnnHandle_t h, const void*, FD w, const void*, TD y, const void*,
                               const cudnnConvolutionDescriptor_t c, cudnnConvolutionBwdDataAlgo_t, void*,
                               size_t, const void*, TD, void*)) {
  conv(h, "dgrad", y, w, c);
  return FINE;
}
U(cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void*, TD, const void*, TD y, const void*,
                                 const cudnnConvolutionDescriptor_t c, cudnnConvolutionBwdFilterAlgo_t, void*,
                                 size_t, const void*, FD w, void*)) {
  conv(h, "wgrad", y, w, c);
  return FINE;
}
// batch normalization, dropout, pooling
static double touch_ns(TD x, int times) {
  return 1e9 * count(o(x)) * width(o(x)->type) * times / (model().bandwidth * 0.8);
}
U(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(cudnnHandle_t, cudnnBatchNormMode_t,
                                                           cudnnBatchNormOps_t, TD, TD, TD, TD,
                                                           const cudnnActivationDescriptor_t, size_t* n)) {
  *n = 0;
  return FINE;
}
U(cudnnGetBatchNormalizationBackwardExWorkspaceSize(cudnnHandle_t, cudnnBatchNormMode_t, cudnnBatchNormOps_t,
                                                    TD, TD, TD, TD, TD, TD, const cudnnActivationDescriptor_t,
                                                    size_t* n)) {
  *n = 0;
  return FINE;
}
U(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t, cudnnBatchNormMode_t,
                                                       cudnnBatchNormOps_t, const cudnnActivationDescriptor_t,
                                                       TD, size_t* n)) {
  *n = 0;
  return FINE;
}
U(cudnnBatchNormalizationForwardTrainingEx(cudnnHandle_t h, cudnnBatchNormMode_t, cudnnBatchNormOps_t,
                                           const void*, const void*, TD x, const void*, TD, const void*, TD,
                                           void*, TD, const void*, const void*, double, void*, void*, double,
                                           void*, void*, const cudnnActivationDescriptor_t, void*, size_t,
                                           void*, size_t)) {
  launch_cudnn(h,
               "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, "
               "true>(cudnnTensorStruct, float const*)",
               touch_ns(x, 3), count(o(x)) / 4);
  return FINE;
}
U(cudnnBatchNormalizationForwardInference(cudnnHandle_t h, cudnnBatchNormMode_t, const void*, const void*,
                                          TD x, const void*, TD, void*, TD, const void*, const void*,
                                          const void*, const void*, double)) {
  launch_cudnn(h, "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float, float)",
               touch_ns(x, 2), count(o(x)) / 4);
  return FINE;
}
U(cudnnBatchNormalizationBackwardEx(cudnnHandle_t h, cudnnBatchNormMode_t, cudnnBatchNormOps_t, const void*,
                                    const void*, const void*, const void*, TD x, const void*, TD, const void*,
                                    TD, const void*, TD, void*, TD, void*, TD, const void*, const void*,
                                    void*, void*, double, const void*, const void*,
                                    const cudnnActivationDescriptor_t, void*, size_t, void*, size_t)) {
  launch_cudnn(h,
               "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float, float, "
               "float, cudnnTensorStruct)",
               touch_ns(x, 5), count(o(x)) / 4);
  return FINE;
}
U(cudnnDropoutGetStatesSize(cudnnHandle_t, size_t* n)) {
  *n = 1 << 20;
  return FINE;
}
U(cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t, cudnnHandle_t h, float, void*, size_t,
                            unsigned long long)) {
  launch_cudnn(h, "void init_rng_kernel(curandStateXORWOW*)", 20000, 4096);
  return FINE;
}
U(cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t, cudnnHandle_t, float, void*, size_t,
                                unsigned long long)) {
  return FINE;
}
U(cudnnPoolingForward(cudnnHandle_t h, const cudnnPoolingDescriptor_t, const void*, TD x, const void*,
                      const void*, TD, void*)) {
  launch_cudnn(h, "cudnn_pooling_fw", touch_ns(x, 1), count(o(x)));
  return FINE;
}
// recurrent layers
U(cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t d, cudnnRNNAlgo_t, cudnnRNNMode_t m, cudnnRNNBiasMode_t b,
                           cudnnDirectionMode_t dir, cudnnRNNInputMode_t, cudnnDataType_t t, cudnnDataType_t,
                           cudnnMathType_t math, int32_t in, int32_t hid, int32_t proj, int32_t layers,
                           cudnnDropoutDescriptor_t, uint32_t)) {
  auto* x = o(d);
  x->mode = m;
  x->bias = b;
  x->dirs = dir == CUDNN_BIDIRECTIONAL ? 2 : 1;
  x->type = t;
  x->in = in;
  x->hidden = hid;
  x->proj = proj;
  x->layers = layers;
  x->math = math;
  return FINE;
}
U(cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t t, cudnnRNNDataLayout_t, int seq,
                            int batch, int vec, const int*, void*)) {
  o(d)->type = t;
  o(d)->seq = seq;
  o(d)->batch = batch;
  o(d)->vec = vec;
  return FINE;
}
static int gates(Obj* x) {
  return x->mode == CUDNN_LSTM ? 4 : x->mode == CUDNN_GRU ? 3 : 1;
}
static size_t layer_elements(Obj* x, int pseudo) {
  int layer = pseudo / x->dirs;
  int in = layer == 0 ? x->in : x->hidden * x->dirs;
  return (size_t)gates(x) * ((size_t)x->hidden * in + (size_t)x->hidden * x->hidden + 2 * x->hidden);
}
U(cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t d, size_t* n)) {
  size_t e = 0;
  for (int i = 0; i < o(d)->layers * o(d)->dirs; i++) e += layer_elements(o(d), i);
  *n = e * width(o(d)->type);
  return FINE;
}
U(cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t d, cudnnForwardMode_t m,
                            cudnnRNNDataDescriptor_t x, size_t* work, size_t* reserve)) {
  auto* r = o(d);
  size_t n = (size_t)o(x)->seq * o(x)->batch * r->hidden * r->layers * r->dirs * width(r->type);
  *work = n * gates(r);
  if (reserve) *reserve = m == CUDNN_FWD_MODE_TRAINING ? n * (gates(r) + 2) : 0;
  return FINE;
}
U(cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t d, int32_t pseudo, size_t, const void* w,
                          int32_t id, cudnnTensorDescriptor_t md, void** ma, cudnnTensorDescriptor_t bd,
                          void** ba)) {
  auto* x = o(d);
  int g = gates(x), layer = pseudo / x->dirs, in = layer == 0 ? x->in : x->hidden * x->dirs,
      es = width(x->type);
  size_t at = 0;
  for (int i = 0; i < pseudo; i++) at += layer_elements(x, i);
  if (ma) *ma = nullptr;
  if (ba) *ba = nullptr;
  if (id >= 2 * g) return FINE;
  bool rec = id >= g;
  size_t m = rec ? (size_t)g * x->hidden * in + (size_t)(id - g) * x->hidden * x->hidden
                 : (size_t)id * x->hidden * in;
  size_t b = (size_t)g * x->hidden * (in + x->hidden) + (size_t)id * x->hidden;
  if (ma) *ma = (char*)w + (at + m) * es;
  if (md) {
    o(md)->type = x->type;
    o(md)->dims = {1, x->hidden, rec ? x->hidden : in};
    o(md)->strides = {1, 1, 1};
  }
  if (x->bias != CUDNN_RNN_NO_BIAS) {
    if (ba) *ba = (char*)w + (at + b) * es;
    if (bd) {
      o(bd)->type = x->type;
      o(bd)->dims = {1, x->hidden, 1};
      o(bd)->strides = {1, 1, 1};
    }
  }
  return FINE;
}
static void rnn(cudnnHandle_t h, cudnnRNNDescriptor_t d, cudnnRNNDataDescriptor_t x, const char* what) {
  auto* r = o(d);
  auto* s = o(x);
  int bits = width(r->type) * 8;
  for (int l = 0; l < r->layers * r->dirs; l++) {
    int in = l / r->dirs == 0 ? r->in : r->hidden * r->dirs;
    launch_cudnn(h,
                 "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_"
                 "tensor16x8x8_execute_kernel__5x_cudnn",
                 gemm_ns((double)s->seq * s->batch, (double)gates(r) * r->hidden, in, 1, bits, true),
                 (double)s->seq * s->batch * r->hidden / 16);
    for (int t = 0; t < s->seq && t < 64; t++)
      launch_cudnn(h, what, gemm_ns(s->batch, (double)gates(r) * r->hidden, r->hidden, 1, bits, true),
                   (double)s->batch * r->hidden);
  }
}
U(cudnnRNNForward(cudnnHandle_t h, cudnnRNNDescriptor_t d, cudnnForwardMode_t, const int32_t*,
                  cudnnRNNDataDescriptor_t x, const void*, cudnnRNNDataDescriptor_t, void*,
                  cudnnTensorDescriptor_t, const void*, void*, cudnnTensorDescriptor_t, const void*, void*,
                  size_t, const void*, size_t, void*, size_t, void*)) {
  rnn(h, d, x,
      "void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(int, int)");
  return FINE;
}
U(cudnnRNNBackwardData_v8(cudnnHandle_t h, cudnnRNNDescriptor_t d, const int32_t*, cudnnRNNDataDescriptor_t,
                          const void*, const void*, cudnnRNNDataDescriptor_t x, void*,
                          cudnnTensorDescriptor_t, const void*, const void*, void*, cudnnTensorDescriptor_t,
                          const void*, const void*, void*, size_t, const void*, size_t, void*, size_t,
                          void*)) {
  rnn(h, d, x, "void LSTM_elementWise_bp1<float, float, float>(int, int)");
  return FINE;
}
U(cudnnRNNBackwardWeights_v8(cudnnHandle_t h, cudnnRNNDescriptor_t d, cudnnWgradMode_t, const int32_t*,
                             cudnnRNNDataDescriptor_t x, const void*, cudnnTensorDescriptor_t, const void*,
                             cudnnRNNDataDescriptor_t, const void*, size_t, void*, size_t, void*, size_t,
                             void*)) {
  auto* r = o(d);
  launch_cudnn(h, "sm80_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x16_cudnn_rnn_wgrad",
               gemm_ns(4. * r->hidden, r->in + r->hidden, (double)o(x)->seq * o(x)->batch,
                       r->layers * r->dirs, 32, true),
               1 << 16);
  return FINE;
}
