// NCCL between processes of this machine, each with its own simulated device.
//
// Ranks meet in shared memory (nccl_rendezvous.h). A collective is one kernel on each rank. It starts when
// the rank's stream reaches it, and ends on all ranks once the last rank has arrived and the data would have
// passed around the NVLink ring. So a rank that arrives early has a long kernel, as on real hardware. Not
// simulated: multiple nodes, windows and device-side communication, growing and shrinking communicators.
#include <nccl.h>

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "export.h"
#include "memory.h"
#include "nccl_communicator.h"
#include "nccl_data.h"
#include "process.h"

using namespace sim;

namespace {

// The object behind an ncclComm_t.
using Handle = std::shared_ptr<Communicator>;
Communicator& of(ncclComm_t handle) {
  return **(Handle*)handle;
}

thread_local std::string last_error;
ncclResult_t fail(ncclResult_t result, const std::string& text) {
  last_error = text;
  log("NCCL: %s", text.c_str());
  return result;
}

// --- groups ---

struct Queued {
  ncclComm_t communicator;
  cudaStream_t stream;
  std::vector<Task> tasks;
};
thread_local int group_depth;
thread_local std::vector<Queued> queued;
thread_local std::vector<std::function<ncclResult_t()>> queued_inits;

struct DeviceGuard {
  explicit DeviceGuard(int device) : before(current_device()) {
    current_device() = device;
  }
  ~DeviceGuard() {
    current_device() = before;
  }
  int before;
};

// With a single rank, a collective is a copy without a kernel.
ncclResult_t run_single_rank(const std::vector<Task>& tasks, cudaStream_t stream) {
  std::vector<const Task*> sends, receives;
  for (const Task& task : tasks) {
    if (task.kind == Task::SEND) sends.push_back(&task);
    if (task.kind == Task::RECEIVE) receives.push_back(&task);
  }
  if (sends.size() != receives.size())
    return fail(ncclInvalidUsage, "a send to the rank itself has no matching receive");
  auto copy = [&](void* to, const void* from, const Task& task) {
    if (to == from) return ncclSuccess;
    cudaError_t error =
        cudaMemcpyAsync(to, from, task.count * bytes_of(task.type), cudaMemcpyDeviceToDevice, stream);
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  };
  for (const Task& task : tasks) {
    if (task.kind >= Task::SEND) continue;
    if (ncclResult_t error = copy(task.receive, task.send, task)) return error;
  }
  for (size_t i = 0; i < sends.size(); i++)
    if (ncclResult_t error = copy(receives[i]->receive, sends[i]->send, *sends[i])) return error;
  return ncclSuccess;
}

ncclResult_t launch(const Queued& group) {
  Communicator& communicator = of(group.communicator);
  DeviceGuard guard(communicator.device);
  if (communicator.ranks() == 1) return run_single_rank(group.tasks, group.stream);
  int error = communicator.launch(group.tasks, group.stream);
  return error ? fail(ncclUnhandledCudaError,
                      "the kernel could not be launched: error " + std::to_string(error))
               : ncclSuccess;
}

ncclResult_t call(ncclComm_t communicator, cudaStream_t stream, std::vector<Task> tasks) {
  if (!communicator) return fail(ncclInvalidArgument, "the communicator is NULL");
  Communicator& comm = of(communicator);
  for (Task& task : tasks) {
    if (task.type < 0 || task.type >= ncclNumTypes) return fail(ncclInvalidArgument, "unknown data type");
    if (task.peer < 0 || task.peer >= comm.ranks()) return fail(ncclInvalidArgument, "no such rank");
    if (task.op < ncclNumOps) continue;
    size_t index = task.op - ncclNumOps;
    if (index >= comm.factors.size()) return fail(ncclInvalidArgument, "unknown reduction");
    task.op = ncclSum;
    task.factor = comm.factors[index];
  }
  Queued* into = nullptr;
  for (Queued& one : queued)
    if (one.communicator == communicator && one.stream == stream) into = &one;
  if (!into) {
    queued.push_back({communicator, stream, {}});
    into = &queued.back();
  }
  into->tasks.insert(into->tasks.end(), tasks.begin(), tasks.end());
  if (group_depth > 0) return ncclSuccess;
  group_depth = 1;
  return ncclGroupEnd();
}

// NCCL drops empty collectives (taskAppend).
ncclResult_t collective(Task::Kind kind, const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t communicator, cudaStream_t stream) {
  if (count == 0) return ncclSuccess;
  Task task;
  task.kind = kind;
  task.send = send;
  task.receive = receive;
  task.count = count;
  task.type = type;
  task.op = op;
  task.peer = root;
  return call(communicator, stream, {task});
}

Task message(Task::Kind kind, const void* buffer, size_t count, ncclDataType_t type, int peer) {
  Task task;
  task.kind = kind;
  (kind == Task::SEND ? task.send : (const void*&)task.receive) = buffer;
  task.count = count;
  task.type = type;
  task.peer = peer;
  return task;
}

// --- communicators ---

ncclResult_t join(ncclComm_t* out, int ranks, const std::string& name, int rank) {
  *out = nullptr;
  if (rank < 0 || rank >= ranks)
    return fail(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  if (ranks > kMaxRanks) return fail(ncclInvalidUsage, "more than 64 ranks are not simulated");
  if (init_context()) return fail(ncclUnhandledCudaError, "no CUDA context");
  int device = current_device(), physical = visible_to_physical(device);
  std::string reason;
  std::unique_ptr<Rendezvous> rendezvous(Rendezvous::join(name, rank, ranks, physical, &reason));
  if (!rendezvous) return fail(ncclSystemError, reason);
  std::map<int, int> by_device;
  for (int i = 0; i < ranks; i++) {
    auto [other, is_new] = by_device.emplace(rendezvous->segment().members[i].device, i);
    if (is_new) continue;
    char text[128];
    snprintf(text, sizeof text, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x",
             other->second, i, (0x18 + other->first) << 12);
    return fail(ncclInvalidUsage, text);
  }
  *out = (ncclComm_t) new Handle(std::make_shared<Communicator>(std::move(rendezvous), name, device));
  return ncclSuccess;
}

ncclResult_t init(ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank) {
  std::string name(id.internal, strnlen(id.internal, sizeof id.internal));
  if (name.empty() || name.find('/') != std::string::npos)
    return fail(ncclInvalidArgument, "not a unique id");
  if (group_depth == 0) return join(out, ranks, name, rank);
  int device = current_device();
  queued_inits.push_back([=] {
    DeviceGuard guard(device);
    return join(out, ranks, name, rank);
  });
  return ncclSuccess;
}

void release(ncclComm_t handle) {
  auto* communicator = (Handle*)handle;
  (*communicator)->rendezvous().segment().members[(*communicator)->rank()].finalized = 1;
  (*communicator)->stop_listening();
  Lock lock(mu);
  delete communicator;
}

}  // namespace

#define NCCL(...) EXPORT ncclResult_t __VA_ARGS__

NCCL(ncclGetVersion(int* version)) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
EXPORT const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}
EXPORT const char* ncclGetLastError(ncclComm_t communicator) {
  static thread_local std::string text;
  text = communicator ? of(communicator).last_error() : "";
  if (text.empty()) text = last_error;
  return text.c_str();
}

// --- communicators ---

NCCL(ncclGetUniqueId(ncclUniqueId* id)) {
  memset(id, 0, sizeof *id);
  uint64_t random[2] = {};
  int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  bool whole = file >= 0 && read(file, random, sizeof random) == (ssize_t)sizeof random;
  if (file >= 0) close(file);
  if (!whole) return fail(ncclSystemError, "cannot read /dev/urandom");
  snprintf(id->internal, sizeof id->internal, "%d.%016lx%016lx", getpid(), random[0], random[1]);
  return ncclSuccess;
}
NCCL(ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank, ncclConfig_t*)) {
  return init(out, ranks, id, rank);
}
NCCL(ncclCommInitRank(ncclComm_t* out, int ranks, ncclUniqueId id, int rank)) {
  return init(out, ranks, id, rank);
}
NCCL(ncclCommInitRankScalable(ncclComm_t* out, int ranks, int rank, int ids, ncclUniqueId* id,
                              ncclConfig_t*)) {
  if (ids < 1) return fail(ncclInvalidArgument, "no unique id");
  return init(out, ranks, id[0], rank);
}
NCCL(ncclCommInitAll(ncclComm_t* out, int devices, const int* list)) {
  ncclUniqueId id;
  if (ncclResult_t error = ncclGetUniqueId(&id)) return error;
  ncclGroupStart();
  for (int i = 0; i < devices; i++) {
    DeviceGuard guard(list ? list[i] : i);
    init(out + i, devices, id, i);
  }
  return ncclGroupEnd();
}
NCCL(ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* out, ncclConfig_t*)) {
  Communicator& parent = of(handle);
  Segment& segment = parent.rendezvous().segment();
  uint32_t round = ++parent.splits;
  RankInfo& me = segment.members[parent.rank()];
  me.color[round % 2] = color;
  me.key[round % 2] = key;
  me.splits = round;
  parent.rendezvous().notify();
  std::map<std::pair<int, int>, int> members;  // by key, then by rank
  for (int i = 0; i < parent.ranks(); i++) {
    RankInfo& other = segment.members[i];
    while (other.splits < round) {
      uint32_t seen = segment.changes;
      if (other.splits >= round) break;
      parent.rendezvous().wait(seen, 200);
      if (parent.aborted() || parent.rendezvous().dead_rank() >= 0)
        return fail(ncclRemoteError, "not all ranks called ncclCommSplit");
    }
    if (other.color[round % 2] == color) members[{other.key[round % 2], i}] = i;
  }
  *out = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  int rank = 0;
  for (auto& [order, member] : members) {
    if (member == parent.rank()) break;
    rank++;
  }
  DeviceGuard guard(parent.device);
  return join(out, members.size(), parent.name + "." + std::to_string(round) + "." + std::to_string(color),
              rank);
}
NCCL(ncclCommFinalize(ncclComm_t handle)) {
  of(handle).finish();
  return ncclSuccess;
}
NCCL(ncclCommDestroy(ncclComm_t handle)) {
  if (!handle) return ncclSuccess;
  of(handle).finish();
  release(handle);
  return ncclSuccess;
}
NCCL(ncclCommAbort(ncclComm_t handle)) {
  if (!handle) return ncclSuccess;
  of(handle).abort();
  release(handle);
  return ncclSuccess;
}
NCCL(ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error)) {
  *error = of(handle).error;
  return ncclSuccess;
}
NCCL(ncclCommCount(const ncclComm_t handle, int* count)) {
  *count = of(handle).ranks();
  return ncclSuccess;
}
NCCL(ncclCommCuDevice(const ncclComm_t handle, int* device)) {
  *device = of(handle).device;
  return ncclSuccess;
}
NCCL(ncclCommUserRank(const ncclComm_t handle, int* rank)) {
  *rank = of(handle).rank();
  return ncclSuccess;
}

// --- memory ---

NCCL(ncclMemAlloc(void** out, size_t bytes)) {
  return init_context() || dev_malloc(out, bytes) ? fail(ncclUnhandledCudaError, "out of memory")
                                                  : ncclSuccess;
}
NCCL(ncclMemFree(void* memory)) {
  return dev_free(memory) ? ncclInvalidArgument : ncclSuccess;
}
NCCL(ncclCommRegister(const ncclComm_t, void* buffer, size_t, void** out)) {
  *out = buffer;
  return ncclSuccess;
}
NCCL(ncclCommDeregister(const ncclComm_t, void*)) {
  return ncclSuccess;
}

// --- user-defined reductions ---

NCCL(ncclRedOpCreatePreMulSum(ncclRedOp_t* out, void* scalar, ncclDataType_t type, ncclScalarResidence_t,
                              ncclComm_t handle)) {
  // A scalar in device memory is read when the reduction is created. Kernels compute nothing here, so only
  // the host can have written it.
  Communicator& communicator = of(handle);
  communicator.factors.push_back(scalar_at(scalar, type));
  *out = (ncclRedOp_t)(ncclNumOps + communicator.factors.size() - 1);
  return ncclSuccess;
}
NCCL(ncclRedOpDestroy(ncclRedOp_t, ncclComm_t)) {
  return ncclSuccess;
}

// --- operations ---

NCCL(ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                   ncclComm_t comm, cudaStream_t stream)) {
  return collective(Task::ALL_REDUCE, send, receive, count, type, op, 0, comm, stream);
}
NCCL(ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
                       ncclComm_t comm, cudaStream_t stream)) {
  return collective(Task::REDUCE_SCATTER, send, receive, count, type, op, 0, comm, stream);
}
NCCL(ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                   cudaStream_t stream)) {
  return collective(Task::ALL_GATHER, send, receive, count, type, ncclSum, 0, comm, stream);
}
NCCL(ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                   ncclComm_t comm, cudaStream_t stream)) {
  return collective(Task::BROADCAST, send, receive, count, type, ncclSum, root, comm, stream);
}
NCCL(ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
               cudaStream_t stream)) {
  return collective(Task::BROADCAST, buffer, buffer, count, type, ncclSum, root, comm, stream);
}
NCCL(ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                ncclComm_t comm, cudaStream_t stream)) {
  return collective(Task::REDUCE, send, receive, count, type, op, root, comm, stream);
}
NCCL(ncclSend(const void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
              cudaStream_t stream)) {
  return call(comm, stream, {message(Task::SEND, buffer, count, type, peer)});
}
NCCL(ncclRecv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
              cudaStream_t stream)) {
  return call(comm, stream, {message(Task::RECEIVE, buffer, count, type, peer)});
}
NCCL(ncclAlltoAll(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                  cudaStream_t stream)) {
  size_t part = count * bytes_of(type);
  std::vector<Task> tasks;
  for (int i = 0; i < of(comm).ranks() && count; i++) {
    tasks.push_back(message(Task::SEND, (const char*)send + i * part, count, type, i));
    tasks.push_back(message(Task::RECEIVE, (char*)receive + i * part, count, type, i));
  }
  return tasks.empty() ? ncclSuccess : call(comm, stream, tasks);
}
NCCL(ncclGather(const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                cudaStream_t stream)) {
  size_t part = count * bytes_of(type);
  std::vector<Task> tasks{message(Task::SEND, send, count, type, root)};
  for (int i = 0; i < of(comm).ranks() && root == of(comm).rank(); i++)
    tasks.push_back(message(Task::RECEIVE, (char*)receive + i * part, count, type, i));
  return count ? call(comm, stream, tasks) : ncclSuccess;
}
NCCL(ncclScatter(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                 ncclComm_t comm, cudaStream_t stream)) {
  size_t part = count * bytes_of(type);
  std::vector<Task> tasks{message(Task::RECEIVE, receive, count, type, root)};
  for (int i = 0; i < of(comm).ranks() && root == of(comm).rank(); i++)
    tasks.push_back(message(Task::SEND, (const char*)send + i * part, count, type, i));
  return count ? call(comm, stream, tasks) : ncclSuccess;
}

NCCL(ncclGroupStart()) {
  group_depth++;
  return ncclSuccess;
}
NCCL(ncclGroupEnd()) {
  if (group_depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group_depth > 0) return ncclSuccess;
  // ncclCommInitRank blocks until all ranks have called it, so the ranks of one process each need a thread.
  auto inits = std::move(queued_inits);
  auto groups = std::move(queued);
  queued_inits.clear();
  queued.clear();
  std::vector<ncclResult_t> results(inits.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < inits.size(); i++) threads.emplace_back([&, i] { results[i] = inits[i](); });
  for (auto& thread : threads) thread.join();
  for (ncclResult_t result : results)
    if (result) return result;
  for (const Queued& group : groups)
    if (ncclResult_t error = launch(group)) return error;
  return ncclSuccess;
}
