// An NCCL communicator from one rank's point of view, and the operations that its ranks run together.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nccl_rendezvous.h"
#include "timeline.h"

namespace sim {

// The parameters of one NCCL call.
struct Task {
  enum Kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, SEND, RECEIVE } kind;
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;  // the count argument of the call
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  double factor = 1;  // of ncclRedOpCreatePreMulSum
  int peer = 0;       // or root

  uint64_t number = 0;  // of the collective in the communicator, or of the message between two ranks; from 1
  bool published = false, done = false;
};
inline bool is_message(const Task& task) {
  return task.kind == Task::SEND || task.kind == Task::RECEIVE;
}

// The calls of one group, as one kernel that this rank's device has reached.
struct RunningGroup {
  std::vector<Task> tasks;
  uint64_t start;         // on this rank
  uint64_t latest_start;  // latest start of all ranks that have arrived
  FutureTimePtr end;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(std::unique_ptr<Rendezvous> rendezvous, std::string name, int device);
  ~Communicator();

  const std::string name;
  const int device;
  Rendezvous& rendezvous() {
    return *rendezvous_;
  }
  int rank() const {
    return rendezvous_->rank();
  }
  int ranks() const {
    return rendezvous_->ranks();
  }

  // Enqueues the calls of one group as one kernel. Returns a CUDA error code.
  int launch(std::vector<Task> tasks, cudaStream_t stream);
  // Waits until all launched operations have finished.
  void finish();
  // Ends running operations without transferring their data.
  void abort();
  // Stops the thread that waits for the other ranks.
  void stop_listening();

  // The result of ncclCommGetAsyncError, and its reason.
  std::atomic<ncclResult_t> error{ncclSuccess};
  std::string last_error();
  bool aborted() const {
    return aborted_;
  }

  std::vector<double> factors;  // scale factors of the reductions created by ncclRedOpCreatePreMulSum
  uint32_t splits = 0;

 private:
  void fail(ncclResult_t result, const std::string& text);
  void begin(std::vector<Task> tasks, uint64_t start, FutureTimePtr end);
  // Makes all progress that is possible without blocking.
  void make_progress();
  bool make_progress(RunningGroup& running);
  void copy_to_slot(const Task& task, char* slot);
  void copy_from_slots(const Task& task);
  bool publish_collective(const Task& task, uint64_t start);
  bool publish_message(const Task& task, uint64_t start);
  bool end_collective(const Task& task, RunningGroup& running);
  bool end_message(const Task& task, RunningGroup& running);
  void check_arrival(const Task& task, const Arrival& other, RunningGroup& running);
  void listen();

  std::unique_ptr<Rendezvous> rendezvous_;
  // Guarded by mu.
  uint64_t collectives_ = 0;
  std::vector<uint64_t> sent_, received_;  // by rank
  std::list<RunningGroup> running_;
  FutureTimePtr latest_;  // the end of the last launched operation
  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool listening_ = false, stop_ = false;
  std::string last_error_;

  std::atomic<bool> aborted_{false};
  std::thread listener_;
};

}  // namespace sim
