// A communicator of NCCL as one rank sees it, and the operations that its ranks do together.
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

// What one call of NCCL asks for.
struct Task {
  enum Kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, SEND, RECEIVE } kind;
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;  // as the call gives it
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t op = ncclSum;
  double factor = 1;  // of ncclRedOpCreatePreMulSum
  int peer = 0;       // or root

  uint64_t number = 0;  // among the communicator's collectives, or the messages between the two ranks, from 1
  bool published = false, done = false;
};
inline bool is_message(const Task& task) {
  return task.kind == Task::SEND || task.kind == Task::RECEIVE;
}

// The calls of one group: one kernel, which the device of this rank has come to.
struct Running {
  std::vector<Task> tasks;
  uint64_t start;         // on this rank
  uint64_t latest_start;  // of all that have arrived
  MomentPtr end;
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
  // Waits until all that was launched has ended.
  void finish();
  // Ends what is under way without its data.
  void abort();
  // Ends the thread that listens for the other ranks.
  void stop_listening();

  // The result that ncclCommGetAsyncError returns, and why.
  std::atomic<ncclResult_t> error{ncclSuccess};
  std::string last_error();
  bool given_up() const {
    return given_up_;
  }

  std::vector<double> factors;  // of the reductions that ncclRedOpCreatePreMulSum made
  uint32_t splits = 0;

 private:
  void fail(ncclResult_t result, const std::string& text);
  void begin(std::vector<Task> tasks, uint64_t start, MomentPtr end);
  // Does what can be done without waiting.
  void proceed();
  bool proceed(Running& running);
  void give(const Task& task, char* slot);
  void take(const Task& task);
  bool publish_collective(const Task& task, uint64_t start);
  bool publish_message(const Task& task, uint64_t start);
  bool end_collective(const Task& task, Running& running);
  bool end_message(const Task& task, Running& running);
  void meet(const Task& task, const Arrival& other, Running& running);
  void listen();

  std::unique_ptr<Rendezvous> rendezvous_;
  // Guarded by mu.
  uint64_t collectives_ = 0;
  std::vector<uint64_t> sent_, received_;  // by rank
  std::list<Running> running_;
  MomentPtr latest_;  // the end of what was launched last
  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool listens_ = false, stop_ = false;
  std::string last_error_;

  std::atomic<bool> given_up_{false};
  std::thread listener_;
};

}  // namespace sim
