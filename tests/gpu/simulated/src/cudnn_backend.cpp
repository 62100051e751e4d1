// cuDNN's backend (graph) API: descriptors with attributes; a plan is one launch.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <map>
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
#define U(...) EXPORT cudnnStatus_t CUDNNWINAPI __VA_ARGS__
#define FINE CUDNN_STATUS_SUCCESS
struct Any {
  cudnnBackendDescriptorType_t type;
  std::map<int, std::pair<int64_t, std::vector<char>>> a;
};
static Any* any(cudnnBackendDescriptor_t d) {
  return (Any*)d;
}
static size_t size_of(cudnnBackendAttributeType_t t) {
  switch (t) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    case CUDNN_TYPE_FRACTION:
      return 16;
    default:
      return 4;
  }
}
U(cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t t, cudnnBackendDescriptor_t* d)) {
  *d = (cudnnBackendDescriptor_t) new Any{t};
  return FINE;
}
U(cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t)) {
  return FINE;
}
U(cudnnBackendFinalize(cudnnBackendDescriptor_t)) {
  return FINE;
}
U(cudnnBackendInitialize(cudnnBackendDescriptor_t)) {
  return FINE;
}
U(cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t n,
                           cudnnBackendAttributeType_t t, int64_t c, const void* p)) {
  any(d)->a[n] = {c, std::vector<char>((const char*)p, (const char*)p + size_of(t) * c)};
  return FINE;
}
static cudnnBackendDescriptor_t child(cudnnBackendDescriptor_t d, int n) {
  auto it = any(d)->a.find(n);
  return it == any(d)->a.end() ? nullptr : *(cudnnBackendDescriptor_t*)it->second.second.data();
}
U(cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d, cudnnBackendAttributeName_t n,
                           cudnnBackendAttributeType_t t, int64_t room, int64_t* c, void* p)) {
  int64_t dummy;
  if (!c) c = &dummy;
  if (n == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    *c = 1;
    if (p && room > 0) {
      auto e = ((cudnnBackendDescriptor_t*)p)[0];
      auto* engine = new Any{CUDNN_BACKEND_ENGINE_DESCRIPTOR};
      engine->a[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = any(d)->a[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH];
      any(e)->a[CUDNN_ATTR_ENGINECFG_ENGINE] = {1, std::vector<char>((char*)&engine, (char*)&engine + 8)};
    }
    return FINE;
  }
  if (n == CUDNN_ATTR_ENGINECFG_ENGINE) {
    *c = 1;
    auto e = child(d, n);
    if (p && e) {
      auto mine = *(cudnnBackendDescriptor_t*)p;
      if (mine)
        *any(mine) = *any(e);
      else
        *(cudnnBackendDescriptor_t*)p = e;
    }
    return FINE;
  }
  auto it = any(d)->a.find(n);
  if (it != any(d)->a.end()) {
    *c = it->second.first;
    if (p) memcpy(p, it->second.second.data(), std::min<size_t>(it->second.second.size(), room * size_of(t)));
    return FINE;
  }
  if (n == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE || n == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE ||
      n == CUDNN_ATTR_ENGINE_GLOBAL_INDEX || n == CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT) {
    *c = 1;
    if (p) *(int64_t*)p = n == CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT;
    return FINE;
  }
  *c = 0;
  return FINE;
}
U(cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t)) {
  auto cfg = child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  auto engine = cfg ? child(cfg, CUDNN_ATTR_ENGINECFG_ENGINE) : nullptr;
  auto graph = engine ? child(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH) : nullptr;
  const char* name = "cudnn_generated_fort_native_graph_kernel";
  double ns = 20000, threads = 65536;
  if (graph) {
    auto& ops = any(graph)->a[CUDNN_ATTR_OPERATIONGRAPH_OPS];
    bool matmul = false;
    for (int64_t i = 0; i < ops.first; i++) {
      auto op = ((Any**)ops.second.data())[i];
      if (op->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) matmul = true;
    }
    if (matmul)
      name =
          ops.first > 12
              ? "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_64x64x128_4x1x1_kernel0_0"
              : "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_128x128x64_4x1x1_kernel0_"
                "0";
  }
  launch_cudnn(h, name, ns, threads);
  return FINE;
}
