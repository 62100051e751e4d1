// CUDA graphs: what a stream capture records, what is refused during one, and the launch of a graph.
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#include <memory>
#include <vector>

#include "timeline.h"

namespace sim {

struct Graph;

struct GraphNode {
  Op op;
  std::vector<size_t> dependencies;  // indices of nodes of the same graph
  size_t branch = 0;                 // 0 for the stream that began the capture, then one for each that joined
  Graph* graph = nullptr;
  size_t index = 0;
};

struct Graph {
  uint32_t id;
  std::vector<std::unique_ptr<GraphNode>> nodes;
  std::vector<std::function<void()>> on_destroy;  // user objects that the graph retains
  ~Graph();
};

struct Capture {
  std::shared_ptr<Graph> graph;
  cudaStreamCaptureMode mode;
  Stream* origin;
  pthread_t thread;
  std::vector<Stream*> streams;  // that take part, in the order in which they joined
  bool invalid = false;
};

void begin_capture(Capture* capture);
void end_capture(Capture* capture);
// The stream waits for an event that was recorded in a captured stream, and so becomes part of that capture.
int join_capture(Stream* stream, const Event& event);
cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode);  // of the calling thread

// Adds a node to the graph that the stream is captured into. Returns a CUDA error code.
int capture_op(Stream* stream, Op op);

void invalidate(Capture& capture);
// A call that could synchronize or depend on other work implicitly ("potentially unsafe": cudaMalloc, a query
// of an event). Where the capture mode of the calling thread prohibits it, invalidates the captures and
// returns true.
bool prohibited_by_capture();
// A call that waits for all work of a device: refused while any of its streams is being captured.
bool refuse_device_synchronization(int device);
// Work on the legacy stream while a blocking stream is being captured. Returns a CUDA error code.
int refuse_legacy_use(Stream* stream);

}  // namespace sim
