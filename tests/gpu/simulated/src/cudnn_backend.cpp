// cuDNN's backend (graph) API. An operation graph is turned into an engine configuration, by heuristic or by
// engine number, then into an execution plan, which launches kernels.
//
// Descriptors are reference-counted, as in the real library: everything that a plan refers to lives as long
// as the plan, even after the caller destroys its handle.
#include <string.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "cudnn_attention.h"
#include "cudnn_convolution.h"
#include "cudnn_handle.h"
#include "export.h"
#include "process.h"

using namespace sim;

namespace {

struct Descriptor;
using DescriptorPtr = std::shared_ptr<Descriptor>;

struct Attribute {
  int64_t count = 0;
  std::vector<char> data;
  std::vector<DescriptorPtr> children;  // used instead for attributes that hold descriptors
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  std::map<int, Attribute> attributes;
  std::vector<LibraryKernel> kernels;  // set when an execution plan is finalized

  DescriptorPtr child(int name) const {
    auto it = attributes.find(name);
    return it == attributes.end() || it->second.children.empty() ? nullptr : it->second.children[0];
  }
  std::vector<DescriptorPtr> children(int name) const {
    auto it = attributes.find(name);
    return it == attributes.end() ? std::vector<DescriptorPtr>{} : it->second.children;
  }
  template <class T>
  std::vector<T> values(int name) const {
    auto it = attributes.find(name);
    if (it == attributes.end()) return {};
    const T* first = (const T*)it->second.data.data();
    return {first, first + it->second.data.size() / sizeof(T)};
  }
  template <class T>
  void set(int name, T value) {
    const char* bytes = (const char*)&value;
    attributes[name] = {1, {bytes, bytes + sizeof value}, {}};
  }
  void set_child(int name, DescriptorPtr child) {
    attributes[name] = {1, {}, {std::move(child)}};
  }
};

DescriptorPtr& of(cudnnBackendDescriptor_t handle) {
  return *(DescriptorPtr*)handle;
}

size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
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

// --- Kernels of an operation graph ---

CudnnTensor tensor_of(const DescriptorPtr& descriptor) {
  CudnnTensor tensor;
  if (!descriptor) return tensor;
  auto types = descriptor->values<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  if (!types.empty()) tensor.type = types[0];
  tensor.sizes = descriptor->values<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  tensor.strides = descriptor->values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  return tensor;
}

Convolution convolution_of(const Descriptor& operation, Pass pass, int x, int w, int y, int convolution) {
  Convolution it;
  it.pass = pass;
  it.x = tensor_of(operation.child(x));
  it.w = tensor_of(operation.child(w));
  it.y = tensor_of(operation.child(y));
  if (DescriptorPtr parameters = operation.child(convolution))
    it.stride = parameters->values<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  return it;
}

bool is_causal(const Descriptor* graph) {
#if CUDNN_VERSION >= 92100
  if (!graph) return false;
  for (const DescriptorPtr& operation : graph->children(CUDNN_ATTR_OPERATIONGRAPH_OPS))
    if (operation->type == CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR) return true;
#endif
  return false;
}

// Graphs without a fused attention node. Older frontends express attention as GEMMs on four-dimensional
// tensors around a softmax. For any other graph, the cost is that of its GEMMs or of its memory traffic.
std::vector<LibraryKernel> generated_kernels(const Descriptor& graph) {
  std::vector<DescriptorPtr> gemms;
  double bytes = 0;
  for (const DescriptorPtr& operation : graph.children(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    if (operation->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) gemms.push_back(operation);
    for (const auto& [name, attribute] : operation->attributes)
      for (const DescriptorPtr& child : attribute.children) {
        auto is_virtual = child->values<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
        bool stored =
            child->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && (is_virtual.empty() || !is_virtual[0]);
        if (stored) bytes += tensor_of(child).bytes();
      }
  }
  if (gemms.size() >= 2) {
    Attention attention;
    attention.queries = tensor_of(gemms[0]->child(CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    attention.keys = tensor_of(gemms[0]->child(CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    attention.values = tensor_of(gemms[1]->child(CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    attention.backward = gemms.size() > 2;
    attention.causal = is_causal(&graph);
    auto is_4d = [](const CudnnTensor& tensor) { return tensor.sizes.size() == 4; };
    if (is_4d(attention.queries) && is_4d(attention.keys) && is_4d(attention.values)) {
      std::swap(attention.keys.sizes[2], attention.keys.sizes[3]);  // keys are passed transposed
      attention.values.sizes[3] = attention.queries.sizes[3];
      return attention_kernels(attention);
    }
  }
  double ns = 0;
  for (const DescriptorPtr& gemm : gemms) {
    CudnnTensor a = tensor_of(gemm->child(CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    CudnnTensor c = tensor_of(gemm->child(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    if (a.sizes.size() < 2) continue;
    ns += 1e9 * 2 * c.elements() * a.sizes.back() / (peak_flops(Unit::HALF) * 0.6);
  }
  LibraryKernel kernel =
      memory_kernel("cudnn_generated_fort_native_matmul_pointwise_kernel0_0", bytes, bytes / 8);
  if (!gemms.empty()) kernel.ns = std::max(kernel.ns, GEMM_OVERHEAD_NS + ns);
  return {kernel};
}

// The engines for a graph, in the order in which the heuristic ranks them.
std::vector<ConvolutionPlan> engines_of(const Descriptor& graph) {
  for (const DescriptorPtr& one : graph.children(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const Descriptor& operation = *one;
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return convolution_plans(convolution_of(
            operation, Pass::FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC));
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return convolution_plans(convolution_of(
            operation, Pass::DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC));
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return convolution_plans(convolution_of(
            operation, Pass::FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC));
#if CUDNN_VERSION >= 92100
      case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR: {
        Attention attention;
        attention.queries = tensor_of(operation.child(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC));
        attention.keys = tensor_of(operation.child(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC));
        attention.values = tensor_of(operation.child(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC));
        attention.causal = is_causal(operation.child(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH).get());
        return {{attention_kernels(attention), 0, true}};
      }
      case CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR: {
        Attention attention;
        attention.backward = true;
        attention.queries = tensor_of(operation.child(CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC));
        attention.keys = tensor_of(operation.child(CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC));
        attention.values = tensor_of(operation.child(CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC));
#if CUDNN_VERSION >= 92600
        attention.causal = is_causal(operation.child(CUDNN_ATTR_OPERATION_SDPA_BWD_SUBGRAPH).get());
#endif
        return {{attention_kernels(attention), 0, true}};
      }
#endif
      default:
        break;
    }
  }
  return {{generated_kernels(graph), 0, true}};
}

// --- Engines and plans ---

// Engine numbers run from the least to the most recommended. When the recommended engines cannot be used,
// PyTorch falls back to the generic engines 0 and 1.
const ConvolutionPlan* engine_with(const std::vector<ConvolutionPlan>& engines, int64_t number) {
  if (number < 0 || number >= (int64_t)engines.size()) return nullptr;
  return &engines[engines.size() - 1 - number];
}

DescriptorPtr configuration_of(const DescriptorPtr& graph, const ConvolutionPlan& plan, int64_t number) {
  auto engine = std::make_shared<Descriptor>();
  engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
  engine->set_child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
  engine->set<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, number);
  auto configuration = std::make_shared<Descriptor>();
  configuration->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
  configuration->set_child(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
#if CUDNN_VERSION >= 90200
  // Frontends skip notes that they do not know.
  uint32_t shared = 0;
  for (const LibraryKernel& kernel : plan.kernels) shared = std::max(shared, kernel.shared);
  configuration->set<int64_t>(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, plan.workspace_bytes);
  configuration->set<int32_t>(CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, (int32_t)shared);
#endif
  return configuration;
}

int64_t number_of(const Descriptor& engine) {
  auto number = engine.values<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  return number.empty() ? 0 : number[0];
}

cudnnStatus_t recommend(Descriptor& heuristic) {
  DescriptorPtr graph = heuristic.child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (!graph) return CUDNN_STATUS_BAD_PARAM;
  Attribute results;
  std::vector<ConvolutionPlan> engines = engines_of(*graph);
  for (int64_t number = (int64_t)engines.size() - 1; number >= 0; number--)
    results.children.push_back(configuration_of(graph, *engine_with(engines, number), number));
  results.count = (int64_t)results.children.size();
  heuristic.attributes[CUDNN_ATTR_ENGINEHEUR_RESULTS] = results;
  return results.count > 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

// Fills in the attributes that describe an engine.
cudnnStatus_t describe(Descriptor& engine) {
  DescriptorPtr graph = engine.child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  if (!graph) return CUDNN_STATUS_BAD_PARAM;
  std::vector<ConvolutionPlan> engines = engines_of(*graph);
  const ConvolutionPlan* found = engine_with(engines, number_of(engine));
  if (!found) return CUDNN_STATUS_NOT_SUPPORTED;
  if (found->tensor_cores) engine.set(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t plan(Descriptor& plan) {
  DescriptorPtr configuration = plan.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  DescriptorPtr engine = configuration ? configuration->child(CUDNN_ATTR_ENGINECFG_ENGINE) : nullptr;
  DescriptorPtr graph = engine ? engine->child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH) : nullptr;
  if (!graph) return CUDNN_STATUS_BAD_PARAM;
  std::vector<ConvolutionPlan> engines = engines_of(*graph);
  const ConvolutionPlan* found = engine_with(engines, number_of(*engine));
  if (!found) return CUDNN_STATUS_NOT_SUPPORTED;
  plan.kernels = found->kernels;
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, found->workspace_bytes);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

EXPORT cudnnStatus_t cudnnBackendInitialize(cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                  cudnnBackendDescriptor_t* handle) {
  auto descriptor = std::make_shared<Descriptor>();
  descriptor->type = type;
  *handle = (cudnnBackendDescriptor_t) new DescriptorPtr(std::move(descriptor));
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
  delete (DescriptorPtr*)handle;
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  Descriptor& descriptor = *of(handle);
  switch (descriptor.type) {
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return recommend(descriptor);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
      return describe(descriptor);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return plan(descriptor);
    default:
      return CUDNN_STATUS_SUCCESS;
  }
}

EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count,
                                              const void* values) {
  if (count < 0 || (count > 0 && !values)) return CUDNN_STATUS_BAD_PARAM;
  Attribute attribute;
  attribute.count = count;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    auto* handles = (const cudnnBackendDescriptor_t*)values;
    for (int64_t i = 0; i < count; i++)
      if (handles[i]) attribute.children.push_back(of(handles[i]));
  } else if (count > 0) {
    attribute.data.assign((const char*)values, (const char*)values + count * size_of(type));
  }
  of(handle)->attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t handle,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t capacity,
                                              int64_t* count, void* values) {
  Descriptor& descriptor = *of(handle);
  int64_t unused;
  if (!count) count = &unused;
  if (name == CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT)
    descriptor.set<int64_t>(name, (int64_t)engines_of(descriptor).size());
  // The notes of an engine are known once its number is set.
  if (descriptor.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && name == CUDNN_ATTR_ENGINECFG_ENGINE)
    if (DescriptorPtr engine = descriptor.child(name)) (void)describe(*engine);
  auto it = descriptor.attributes.find(name);
  if (it == descriptor.attributes.end()) {
    log("cudnnBackendGetAttribute: descriptor %d has no attribute %d", descriptor.type, name);
    *count = 0;
    return CUDNN_STATUS_SUCCESS;
  }
  const Attribute& attribute = it->second;
  // With room for fewer elements, the count is that of the elements written: PyTorch requests only the first
  // recommendation.
  *count = capacity > 0 ? std::min(capacity, attribute.count) : attribute.count;
  if (!values || capacity <= 0) return CUDNN_STATUS_SUCCESS;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    // The caller allocates the descriptors, and the library fills them in.
    auto* handles = (cudnnBackendDescriptor_t*)values;
    for (int64_t i = 0; i < std::min(capacity, (int64_t)attribute.children.size()); i++)
      if (handles[i]) of(handles[i]) = attribute.children[i];
  } else {
    memcpy(values, attribute.data.data(), std::min(attribute.data.size(), (size_t)capacity * size_of(type)));
  }
  return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t) {
  return launch_on(handle, of(plan)->kernels);
}
