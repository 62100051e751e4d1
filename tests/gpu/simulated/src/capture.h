// CUDA graphs: recording a stream capture, rejecting prohibited calls during capture, and launching graphs.
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
  size_t branch = 0;                 // 0: the stream that began the capture; others joined later
  Graph* graph = nullptr;
  size_t index = 0;
};

struct Graph {
  uint32_t id;
  std::vector<std::unique_ptr<GraphNode>> nodes;
  std::vector<std::function<void()>> on_destroy;  // for the user objects that the graph retains
  ~Graph();
};

struct Capture {
  std::shared_ptr<Graph> graph;
  cudaStreamCaptureMode mode;
  Stream* origin;
  pthread_t thread;
  std::vector<Stream*> streams;  // participating streams, in the order in which they joined
  bool invalid = false;
};

void begin_capture(Capture* capture);
void end_capture(Capture* capture);
// Called when the stream waits for an event recorded in a capturing stream: the stream joins that capture.
int join_capture(Stream* stream, const Event& event);
cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode);  // for the calling thread

// Adds a node to the graph being captured on the stream. Returns a CUDA error code.
int capture_op(Stream* stream, Op op);

void invalidate(Capture& capture);
// Called by potentially unsafe calls, which may synchronize implicitly (cudaMalloc, cudaEventQuery). If the
// calling thread's capture mode prohibits the call, invalidates the captures and returns true.
bool prohibited_by_capture();
// Called when a call waits for all work on a device. Such a call fails while any stream of the device is
// capturing.
bool reject_device_synchronization(int device);
// Checks work on the legacy stream, which is invalid while a blocking stream is capturing. Returns a CUDA
// error code.
int reject_legacy_use(Stream* stream);

}  // namespace sim
