// The CUDA runtime: stream capture and graphs.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <set>

#include "capture.h"
#include "cupti.h"
#include "errors.h"
#include "export.h"
#include "process.h"
#include "timeline.h"

using namespace sim;

namespace {

uint32_t next_graph_id = 1;

// Graphs by handle. A captured graph is added when its capture ends.
std::map<void*, std::shared_ptr<Graph>>& graphs() {
  static auto* all = new std::map<void*, std::shared_ptr<Graph>>;
  return *all;
}

struct Executable {
  std::shared_ptr<Graph> graph;
  std::vector<uint32_t> branch_streams;  // stream ids on which parallel branches run
};

// A graph node starts sooner after its dependencies than a kernel launched separately.
constexpr uint64_t kGraphNodeGapNs = 500;
constexpr uint64_t kGraphLaunchHostNs = 5'000;
constexpr uint64_t kGraphNodeHostNs = 20;

void leave_capture(Capture& capture) {
  for (Stream* stream : capture.streams) {
    stream->capture.reset();
    stream->capture_tail.clear();
  }
}

// Whether all nodes of the capture precede the tail of the origin stream, that is, all forked streams have
// joined.
bool all_joined(const Capture& capture) {
  const auto& nodes = capture.graph->nodes;
  std::vector<bool> seen(nodes.size());
  std::vector<size_t> open = capture.origin->capture_tail;
  while (!open.empty()) {
    size_t index = open.back();
    open.pop_back();
    if (seen[index]) continue;
    seen[index] = true;
    for (size_t before : nodes[index]->dependencies) open.push_back(before);
  }
  return std::all_of(seen.begin(), seen.end(), [](bool s) { return s; });
}

}  // namespace

// --- capture ---

static cudaError_t begin(cudaStream_t handle, std::shared_ptr<Graph> graph, cudaStreamCaptureMode mode) {
  Lock lock(mu);
  Stream* stream = stream_of(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  if (handle == nullptr || handle == cudaStreamLegacy) return fail(cudaErrorStreamCaptureUnsupported);
  if (stream->capture) return fail(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->graph = std::move(graph);
  capture->mode = mode;
  capture->origin = stream;
  capture->thread = pthread_self();
  capture->streams = {stream};
  begin_capture(capture.get());
  stream->capture = capture;
  stream->capture_tail.clear();
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  RUNTIME_CALL(cudaStreamBeginCapture_v10000);
  NEED_CONTEXT();
  Lock lock(mu);
  auto graph = std::make_shared<Graph>();
  graph->id = next_graph_id++;
  return begin(stream, graph, mode);
}

EXPORT cudaError_t CUDARTAPI cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t handle,
                                                           const cudaGraphNode_t*, const cudaGraphEdgeData*,
                                                           size_t, cudaStreamCaptureMode mode) {
  NEED_CONTEXT();
  Lock lock(mu);
  auto found = graphs().find(handle);
  if (found == graphs().end()) return fail(cudaErrorInvalidValue);
  return begin(stream, found->second, mode);
}

EXPORT cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  RUNTIME_CALL(cudaStreamEndCapture_v10000);
  *graph = nullptr;
  NEED_CONTEXT();
  Lock lock(mu);
  Stream* stream = stream_of(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  auto capture = stream->capture;
  if (!capture) return fail(cudaErrorIllegalState);
  if (capture->origin != stream) {
    invalidate(*capture);
    return fail(cudaErrorStreamCaptureUnmatched);
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(capture->thread, pthread_self()))
    return fail(cudaErrorStreamCaptureWrongThread);
  int error = capture->invalid       ? cudaErrorStreamCaptureInvalidated
              : all_joined(*capture) ? 0
                                     : cudaErrorStreamCaptureUnjoined;
  leave_capture(*capture);
  end_capture(capture.get());
  if (error) return fail(error);
  graphs()[capture->graph.get()] = capture->graph;
  *graph = (cudaGraph_t)capture->graph.get();
  return cudaSuccess;
}

static cudaStreamCaptureStatus status_of(Stream* stream) {
  if (!stream->capture) return cudaStreamCaptureStatusNone;
  return stream->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

EXPORT cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  RUNTIME_CALL(cudaStreamIsCapturing_v10000);
  NEED_CONTEXT();
  Stream* stream = stream_of(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  // Querying the legacy stream while a blocking stream is capturing.
  if (int error = reject_legacy_use(stream)) return fail(error);
  *status = status_of(stream);
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                                      unsigned long long* id, cudaGraph_t* graph,
                                                      const cudaGraphNode_t** dependencies,
                                                      const cudaGraphEdgeData** edges, size_t* count) {
  NEED_CONTEXT();
  Lock lock(mu);
  Stream* stream = stream_of(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  *status = status_of(stream);
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
  auto& nodes = stream->capture->graph->nodes;
  stream->capture_tail_handles.clear();
  for (size_t index : stream->capture_tail) stream->capture_tail_handles.push_back(nodes[index].get());
  if (id) *id = stream->capture->graph->id;
  if (graph) *graph = (cudaGraph_t)stream->capture->graph.get();
  if (dependencies) *dependencies = (const cudaGraphNode_t*)stream->capture_tail_handles.data();
  if (count) *count = stream->capture_tail_handles.size();
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t* nodes,
                                                                 const cudaGraphEdgeData*, size_t count,
                                                                 unsigned flags) {
  NEED_CONTEXT();
  Lock lock(mu);
  Stream* stream = stream_of(handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  if (!stream->capture) return fail(cudaErrorIllegalState);
  if (flags == cudaStreamSetCaptureDependencies) stream->capture_tail.clear();
  for (size_t i = 0; i < count; i++) {
    auto* node = (GraphNode*)nodes[i];
    if (node->graph != stream->capture->graph.get()) return fail(cudaErrorInvalidValue);
    stream->capture_tail.push_back(node->index);
  }
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  *mode = exchange_capture_mode(*mode);
  return cudaSuccess;
}

// --- graphs ---

EXPORT cudaError_t CUDARTAPI cudaGraphCreate(cudaGraph_t* handle, unsigned) {
  NEED_CONTEXT();
  Lock lock(mu);
  auto graph = std::make_shared<Graph>();
  graph->id = next_graph_id++;
  graphs()[graph.get()] = graph;
  *handle = (cudaGraph_t)graph.get();
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t handle) {
  RUNTIME_CALL(cudaGraphDestroy_v10000);
  std::shared_ptr<Graph> last;  // user objects are released without holding the lock
  Lock lock(mu);
  auto found = graphs().find(handle);
  if (found == graphs().end()) return fail(cudaErrorInvalidValue);
  last = std::move(found->second);
  graphs().erase(found);
  return cudaSuccess;
}

static Graph* graph_of(cudaGraph_t handle) {
  auto found = graphs().find(handle);
  return found == graphs().end() ? nullptr : found->second.get();
}

EXPORT cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  Lock lock(mu);
  Graph* graph = graph_of(handle);
  if (!graph) return fail(cudaErrorInvalidValue);
  if (nodes)
    for (size_t i = 0; i < *count && i < graph->nodes.size(); i++)
      nodes[i] = (cudaGraphNode_t)graph->nodes[i].get();
  *count = graph->nodes.size();
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGraphNodeGetType(cudaGraphNode_t handle, cudaGraphNodeType* type) {
  switch (((GraphNode*)handle)->op.kind) {
    case Op::KERNEL:
      *type = cudaGraphNodeTypeKernel;
      break;
    case Op::MEMCPY:
      *type = cudaGraphNodeTypeMemcpy;
      break;
    case Op::MEMSET:
      *type = cudaGraphNodeTypeMemset;
      break;
    case Op::HOST_FUNCTION:
      *type = cudaGraphNodeTypeHost;
      break;
    case Op::EMPTY:
      *type = cudaGraphNodeTypeEmpty;
      break;
  }
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t handle, cudaGraphNode_t* nodes,
                                                          cudaGraphEdgeData*, size_t* count) {
  Lock lock(mu);
  auto* node = (GraphNode*)handle;
  if (nodes)
    for (size_t i = 0; i < *count && i < node->dependencies.size(); i++)
      nodes[i] = (cudaGraphNode_t)node->graph->nodes[node->dependencies[i]].get();
  *count = node->dependencies.size();
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* handle, cudaGraph_t graph_handle,
                                                  unsigned long long) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaGraphInstantiate_v12000);
  NEED_CONTEXT();
  Lock lock(mu);
  auto found = graphs().find(graph_handle);
  if (found == graphs().end()) return fail(cudaErrorInvalidValue);
  auto* executable = new Executable{found->second, {}};
  size_t branches = 1;
  for (const auto& node : found->second->nodes) branches = std::max(branches, node->branch + 1);
  for (size_t i = 1; i < branches; i++)
    executable->branch_streams.push_back(create_stream(cudaStreamNonBlocking, 0)->id);
  *handle = (cudaGraphExec_t)executable;
  spin_until(entered + 20'000 + 1'000 * found->second->nodes.size());
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGraphInstantiateWithFlags(cudaGraphExec_t* handle, cudaGraph_t graph,
                                                           unsigned long long flags) {
  return cudaGraphInstantiate(handle, graph, flags);
}

EXPORT cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t handle) {
  RUNTIME_CALL(cudaGraphExecDestroy_v10000);
  delete (Executable*)handle;
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  uint64_t entered = now();
  RUNTIME_CALL(cudaGraphLaunch_v10000);
  NEED_CONTEXT();
  auto* executable = (Executable*)handle;
  std::shared_ptr<Graph> graph = executable->graph;
  Stream* stream = stream_of(stream_handle);
  if (!stream) return fail(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    // During capture, the graph becomes a child graph: its nodes are added to the graph being captured.
    Lock lock(mu);
    for (const auto& node : graph->nodes)
      if (int error = capture_op(stream, node->op)) return fail(error);
    return cudaSuccess;
  }
  spin_until(entered + kGraphLaunchHostNs + kGraphNodeHostNs * graph->nodes.size());
  Lock lock(mu);
  if (int error = reject_legacy_use(stream)) return fail(error);
  FutureTimePtr turn = stream_ready_time(stream);
  uint64_t submitted = now() + 2'200;
  std::vector<FutureTimePtr> ends(graph->nodes.size());
  for (const auto& node : graph->nodes) {
    std::vector<FutureTimePtr> before{turn};
    for (size_t dependency : node->dependencies) before.push_back(ends[dependency]);
    uint32_t id = node->branch ? executable->branch_streams[node->branch - 1] : stream->id;
    ends[node->index] =
        schedule(node->op, stream, id, api.correlation, join(before), submitted, kGraphNodeGapNs);
  }
  ends.push_back(turn);
  extend_tail(stream, join(ends));
  return cudaSuccess;
}

// --- user objects: resources retained by a graph ---

namespace {
struct UserObject {
  void* pointer;
  cudaHostFn_t destroy;
  int references;
};
void release(UserObject* object, int count) {
  object->references -= count;
  if (object->references > 0) return;
  object->destroy(object->pointer);
  delete object;
}
}  // namespace

EXPORT cudaError_t CUDARTAPI cudaUserObjectCreate(cudaUserObject_t* handle, void* pointer,
                                                  cudaHostFn_t destroy, unsigned references, unsigned) {
  *handle = (cudaUserObject_t) new UserObject{pointer, destroy, (int)references};
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaUserObjectRelease(cudaUserObject_t handle, unsigned count) {
  release((UserObject*)handle, (int)count);
  return cudaSuccess;
}

EXPORT cudaError_t CUDARTAPI cudaGraphRetainUserObject(cudaGraph_t handle, cudaUserObject_t object_handle,
                                                       unsigned count, unsigned flags) {
  Lock lock(mu);
  Graph* graph = graph_of(handle);
  if (!graph) return fail(cudaErrorInvalidValue);
  auto* object = (UserObject*)object_handle;
  if (flags != cudaGraphUserObjectMove) object->references += (int)count;
  graph->on_destroy.push_back([object, count] { release(object, (int)count); });
  return cudaSuccess;
}
