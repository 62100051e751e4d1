#include "capture.h"

#include <algorithm>

#include "errors.h"
#include "process.h"

namespace sim {

namespace {
std::vector<Capture*> captures;
}  // namespace

static thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

Graph::~Graph() {
  for (auto& destroy : on_destroy) destroy();
}

cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode) {
  std::swap(mode, thread_mode);
  return mode;
}

void begin_capture(Capture* capture) {
  captures.push_back(capture);
}
void end_capture(Capture* capture) {
  captures.erase(std::remove(captures.begin(), captures.end(), capture), captures.end());
}

void invalidate(Capture& capture) {
  if (!capture.invalid) log("capture %u is invalid", capture.graph->id);
  capture.invalid = true;
}

int capture_op(Stream* stream, Op op) {
  Capture& capture = *stream->capture;
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  Graph& graph = *capture.graph;
  auto node = std::make_unique<GraphNode>();
  node->index = graph.nodes.size();
  node->graph = &graph;
  node->dependencies = stream->capture_tail;
  node->branch = std::find(capture.streams.begin(), capture.streams.end(), stream) - capture.streams.begin();
  op.graph = graph.id;
  op.node = ((uint64_t)graph.id << 32) + node->index + 1;
  node->op = std::move(op);
  stream->capture_tail = {node->index};
  graph.nodes.push_back(std::move(node));
  return 0;
}

int join_capture(Stream* stream, const Event& event) {
  Capture& capture = *event.capture;
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  // The capture in which this event was recorded has ended.
  if (std::find(captures.begin(), captures.end(), &capture) == captures.end()) return cudaErrorCapturedEvent;
  if (!stream->capture) {
    if (stream->id == 7) return cudaErrorStreamCaptureImplicit;
    stream->capture = event.capture;
    stream->capture_tail = event.capture_tail;
    auto& streams = capture.streams;
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
    return 0;
  }
  if (stream->capture.get() != &capture) {
    invalidate(capture);
    invalidate(*stream->capture);
    return cudaErrorStreamCaptureMerge;
  }
  for (size_t node : event.capture_tail)
    if (std::find(stream->capture_tail.begin(), stream->capture_tail.end(), node) ==
        stream->capture_tail.end())
      stream->capture_tail.push_back(node);
  return 0;
}

// As documented for cudaThreadExchangeStreamCaptureMode. In global mode, a thread may not make a potentially
// unsafe call while it has an active capture that is not relaxed, or while any other thread has an active
// global capture. In thread-local mode, only the thread's own captures count.
bool prohibited_by_capture() {
  Lock lock(mu);
  if (captures.empty() || thread_mode == cudaStreamCaptureModeRelaxed) return false;
  bool prohibited = false;
  for (Capture* capture : captures) {
    bool own = pthread_equal(capture->thread, pthread_self());
    bool counts =
        own ? capture->mode != cudaStreamCaptureModeRelaxed
            : thread_mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (!counts) continue;
    invalidate(*capture);
    prohibited = true;
  }
  return prohibited;
}

// CUDA C++ Programming Guide, "Prohibited and Unhandled Operations": it is invalid to synchronize a broader
// handle, such as a device, that contains a stream with an active capture.
bool reject_device_synchronization(int device) {
  Lock lock(mu);
  bool rejected = false;
  for (Capture* capture : captures) {
    if (capture->origin->device != device) continue;
    invalidate(*capture);
    rejected = true;
  }
  return rejected;
}

int reject_legacy_use(Stream* stream) {
  if (captures.empty() || stream->id != 7) return 0;
  Lock lock(mu);
  for (Capture* capture : captures)
    for (Stream* each : capture->streams)
      if (each->device == stream->device && !(each->flags & cudaStreamNonBlocking)) {
        invalidate(*capture);
        return cudaErrorStreamCaptureImplicit;
      }
  return 0;
}

}  // namespace sim
