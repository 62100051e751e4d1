#include "nccl_communicator.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "device_model.h"
#include "nccl_data.h"
#include "nccl_kernel.h"
#include "process.h"

namespace sim {
namespace {

// How long the kernels of the other ranks keep running after a rank exits, unless the communicator is
// aborted. On real hardware they can run forever.
constexpr uint64_t kDeadRankNs = 30ull * 1000000000;
constexpr int kDeadRankPollMs = 200;

// The parameters that must match on all ranks of a collective.
uint64_t signature_of(const Task& task) {
  bool reduces =
      task.kind == Task::ALL_REDUCE || task.kind == Task::REDUCE_SCATTER || task.kind == Task::REDUCE;
  bool has_root = task.kind == Task::BROADCAST || task.kind == Task::REDUCE;
  uint64_t signature = task.count;
  signature = signature * 16 + task.type;
  signature = signature * 16 + (reduces ? task.op : 0);
  signature = signature * 16 + (is_message(task) ? Task::SEND : task.kind);
  return signature * kMaxRanks + (has_root ? task.peer : 0);
}

// Never destroyed, because a thread that is still running at exit uses it.
std::set<Communicator*>* const listeners = new std::set<Communicator*>;
void stop_all_listeners() {
  std::set<Communicator*> all;
  {
    Lock lock(mu);
    all = *listeners;
  }
  for (Communicator* one : all) one->stop_listening();
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Rendezvous> rendezvous, std::string name, int device)
    : name(std::move(name)),
      device(device),
      rendezvous_(std::move(rendezvous)),
      sent_(rendezvous_->ranks()),
      received_(rendezvous_->ranks()) {
  Lock lock(mu);
  latest_ = resolved(0);
  static bool registered = false;
  if (!registered) atexit(stop_all_listeners);
  registered = true;
  listeners->insert(this);
  sigset_t all, before;  // the program's own threads handle signals
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  listener_ = std::thread([this] { listen(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Communicator::~Communicator() {
  stop_listening();
}

void Communicator::stop_listening() {
  {
    Lock lock(mu);
    listeners->erase(this);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (!listener_.joinable()) return;
  if (rendezvous_->segment().members[rank()].pid != getpid()) {  // a forked child does not inherit the thread
    listener_.detach();
    return;
  }
  rendezvous_->notify();
  listener_.join();
}

int Communicator::launch(std::vector<Task> tasks, cudaStream_t handle) {
  Op op = kernel_of(tasks, ranks());
  // A weak pointer, so that the operation does not extend the communicator's lifetime.
  std::weak_ptr<Communicator> self = weak_from_this();
  op.collective = [self, tasks](uint64_t start, FutureTimePtr end) {
    if (auto communicator = self.lock())
      communicator->begin(tasks, start, end);
    else
      resolve(end, start);
  };
  Stream* stream = stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) return launch_kernel_ex(handle, std::move(op));
  // Kernels of one communicator run one after another on any stream (ncclStrongStream).
  {
    Lock lock(mu);
    stream->tail = join({stream->tail, latest_});
  }
  // Called without the lock: it may block until the stream has room.
  int error = launch_kernel_ex(handle, std::move(op));
  Lock lock(mu);
  latest_ = stream->tail;
  return error;
}

void Communicator::begin(std::vector<Task> tasks, uint64_t start, FutureTimePtr end) {
  Lock lock(mu);
  for (Task& task : tasks)
    task.number = task.kind == Task::SEND      ? ++sent_[task.peer]
                  : task.kind == Task::RECEIVE ? ++received_[task.peer]
                                               : ++collectives_;
  running_.push_back({std::move(tasks), start, start, end});
  make_progress();
  if (running_.empty()) return;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    listening_ = true;
  }
  changed_.notify_all();
}

void Communicator::make_progress() {
  Lock lock(mu);
  for (auto one = running_.begin(); one != running_.end();) {
    bool done = make_progress(*one);
    if (!done && !aborted_) {
      ++one;
      continue;
    }
    // Resolving the end may call begin() for the next collective, so the list must be consistent by then.
    uint64_t at = done ? one->latest_start + transfer_ns(one->tasks, ranks()) : std::max(one->start, now());
    FutureTimePtr end = one->end;
    running_.erase(one);
    resolve(end, at);
    one = running_.begin();
  }
}

bool Communicator::make_progress(RunningGroup& running) {
  bool all_done = true;
  for (Task& task : running.tasks) {
    if (!task.published)
      task.published =
          is_message(task) ? publish_message(task, running.start) : publish_collective(task, running.start);
    if (task.published && !task.done)
      task.done = is_message(task) ? end_message(task, running) : end_collective(task, running);
    all_done = all_done && task.done;
  }
  return all_done;
}

void Communicator::check_arrival(const Task& task, const Arrival& other, RunningGroup& running) {
  running.latest_start = std::max(running.latest_start, other.start);
  if (other.signature != signature_of(task))
    fail(ncclInternalError, "the ranks of communicator " + name + " have called different operations");
}

void Communicator::copy_to_slot(const Task& task, char* slot) {
  bool contributes = task.send && (task.kind != Task::BROADCAST || task.peer == rank());
  size_t bytes = contribution_bytes(task, ranks());
  if (!contributes || !is_transferred(bytes, task.type)) return;
  memcpy(slot, task.send, bytes);
  if (task.factor != 1) scale(slot, bytes / bytes_of(task.type), task.type, task.factor);
}

bool Communicator::publish_collective(const Task& task, uint64_t start) {
  Collective& slot = rendezvous_->collective(task.number);
  for (int i = 0; i < ranks(); i++)  // wait until all ranks have left the previous collective in this slot
    if (slot.ranks[i].left + kCollectiveSlots < task.number) return false;
  copy_to_slot(task, rendezvous_->collective_bytes(task.number, rank()));
  Arrival& me = slot.ranks[rank()];
  me.start = start;
  me.signature = signature_of(task);
  me.arrived = task.number;
  rendezvous_->notify();
  return true;
}

bool Communicator::end_collective(const Task& task, RunningGroup& running) {
  Collective& slot = rendezvous_->collective(task.number);
  for (int i = 0; i < ranks(); i++)
    if (slot.ranks[i].arrived != task.number) return false;
  for (int i = 0; i < ranks(); i++) check_arrival(task, slot.ranks[i], running);
  copy_from_slots(task);
  slot.ranks[rank()].left = task.number;
  if (running.tasks.size() > kCollectiveSlots) rendezvous_->notify();  // others may be waiting for the slot
  return true;
}

void Communicator::copy_from_slots(const Task& task) {
  size_t bytes = contribution_bytes(task, ranks());
  if (!is_transferred(bytes, task.type)) return;
  auto contribution = [&](int from) { return rendezvous_->collective_bytes(task.number, from); };
  if (task.kind == Task::ALL_GATHER) {
    for (int i = 0; i < ranks(); i++) memcpy((char*)task.receive + i * bytes, contribution(i), bytes);
    return;
  }
  if (task.kind == Task::BROADCAST) {
    memcpy(task.receive, contribution(task.peer), bytes);
    return;
  }
  if (task.kind == Task::REDUCE && rank() != task.peer) return;
  size_t part = task.count * bytes_of(task.type);
  size_t offset = task.kind == Task::REDUCE_SCATTER ? part * rank() : 0;
  memcpy(task.receive, contribution(0) + offset, part);
  for (int i = 1; i < ranks(); i++)
    reduce(task.receive, contribution(i) + offset, task.count, task.type, task.op);
  if (task.op == ncclAvg) scale(task.receive, task.count, task.type, 1.0 / ranks());
}

bool Communicator::publish_message(const Task& task, uint64_t start) {
  bool sends = task.kind == Task::SEND;
  int from = sends ? rank() : task.peer, to = sends ? task.peer : rank();
  Message& slot = rendezvous_->message(from, to, task.number);
  for (Arrival* one : {&slot.sender, &slot.receiver})
    if (one->left + kMessageSlots < task.number) return false;
  if (sends) copy_to_slot(task, rendezvous_->message_bytes(from, to, task.number));
  Arrival& me = sends ? slot.sender : slot.receiver;
  me.start = start;
  me.signature = signature_of(task);
  me.arrived = task.number;
  rendezvous_->notify();
  return true;
}

bool Communicator::end_message(const Task& task, RunningGroup& running) {
  bool sends = task.kind == Task::SEND;
  int from = sends ? rank() : task.peer, to = sends ? task.peer : rank();
  Message& slot = rendezvous_->message(from, to, task.number);
  Arrival& me = sends ? slot.sender : slot.receiver;
  Arrival& other = sends ? slot.receiver : slot.sender;
  if (other.arrived != task.number) return false;
  check_arrival(task, other, running);
  size_t bytes = contribution_bytes(task, ranks());
  if (!sends && is_transferred(bytes, task.type))
    memcpy(task.receive, rendezvous_->message_bytes(from, to, task.number), bytes);
  me.left = task.number;
  rendezvous_->notify();  // the other rank may be waiting for the slot
  return true;
}

void Communicator::finish() {
  FutureTimePtr latest;
  {
    Lock lock(mu);
    latest = latest_;
  }
  wait_for(latest);
}

void Communicator::abort() {
  aborted_ = true;
  make_progress();
}

void Communicator::fail(ncclResult_t result, const std::string& text) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    last_error_ = text;
  }
  error = result;
  log("NCCL: %s", text.c_str());
}

std::string Communicator::last_error() {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_error_;
}

// Completes operations that wait for other ranks when those arrive, without involving the program's threads.
void Communicator::listen() {
  pthread_setname_np(pthread_self(), "NCCL listener");
  uint64_t last_check = 0, dead_since = 0;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || listening_; });
      if (stop_) return;
    }
    uint32_t seen = rendezvous_->changes();
    {
      Lock lock(mu);
      make_progress();
      std::lock_guard<std::mutex> guard(mutex_);
      listening_ = !running_.empty();
      if (stop_) return;
      if (!listening_) continue;
    }
    rendezvous_->wait(seen, kDeadRankPollMs);
    if (now() - last_check < kDeadRankPollMs * 1000000ull) continue;
    last_check = now();
    int dead = rendezvous_->dead_rank();
    if (dead < 0) continue;
    if (!dead_since) {
      dead_since = last_check;
      fail(ncclRemoteError, "the process of rank " + std::to_string(dead) + " has exited");
    } else if (last_check - dead_since > kDeadRankNs) {
      aborted_ = true;
    }
  }
}

}  // namespace sim
