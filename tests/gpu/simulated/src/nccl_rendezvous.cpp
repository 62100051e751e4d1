#include "nccl_rendezvous.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "timeline.h"

namespace sim {
namespace {

const char* const kFolder = "/dev/shm/";
const char* const kPrefix = "simgpu-nccl.";
// The timeout with which torch waits for the other ranks at its store.
constexpr uint64_t kJoinTimeoutNs = 600ull * 1000000000;

size_t messages_at() {
  return (sizeof(Segment) + 4095) & ~4095ull;
}
size_t bytes_at(int ranks) {
  return (messages_at() + sizeof(Message) * kMessageSlots * ranks * ranks + 4095) & ~4095ull;
}
// Most of the segment is never touched and uses no memory.
size_t segment_bytes(int ranks) {
  return bytes_at(ranks) + kMaxBytes * (kCollectiveSlots * ranks + kMessageSlots * ranks * ranks);
}

// An exited process can remain in the process table as a zombie until its parent waits for it.
bool is_alive(int pid) {
  if (kill(pid, 0) != 0 && errno == ESRCH) return false;
  char path[64], line[512];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  ssize_t length = read(file, line, sizeof line - 1);
  close(file);
  if (length <= 0) return false;
  line[length] = 0;
  // The process name before the state may contain any character. The last parenthesis ends it.
  const char* parenthesis = strrchr(line, ')');
  return !parenthesis || !strchr("ZX", parenthesis[2]);
}

// A segment is unlinked once all ranks have joined. If some never join, it remains, named after the process
// that created its id.
void remove_stale_segments() {
  DIR* folder = opendir(kFolder);
  if (!folder) return;
  while (dirent* entry = readdir(folder)) {
    int pid;
    if (strncmp(entry->d_name, kPrefix, strlen(kPrefix)) != 0) continue;
    if (sscanf(entry->d_name + strlen(kPrefix), "%d", &pid) != 1 || is_alive(pid)) continue;
    unlink((kFolder + std::string(entry->d_name)).c_str());
  }
  closedir(folder);
}

}  // namespace

Rendezvous* Rendezvous::join(const std::string& name, int rank, int ranks, int physical_device,
                             std::string* reason) {
  remove_stale_segments();
  std::string path = kFolder + (kPrefix + name);
  size_t bytes = segment_bytes(ranks);
  int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, bytes) != 0) {
    *reason = "cannot create " + path + ": " + strerror(errno);
    if (file >= 0) close(file);
    return nullptr;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  if (memory == MAP_FAILED) {
    *reason = "cannot map " + path + ": " + strerror(errno);
    return nullptr;
  }
  auto* self = new Rendezvous((Segment*)memory, bytes, rank, ranks);
  RankInfo& me = self->segment_->members[rank];
  me.device = physical_device;
  if (me.pid.exchange(getpid()) != 0) {
    *reason = "rank " + std::to_string(rank) + " has joined twice";
    delete self;
    return nullptr;
  }
  self->segment_->joined++;
  self->notify();

  uint64_t deadline = now() + kJoinTimeoutNs;
  while ((int)self->segment_->joined < ranks) {
    uint32_t changes = self->segment_->changes;
    if ((int)self->segment_->joined >= ranks) break;
    self->wait(changes, 200);
    int dead = self->dead_rank();
    if (dead < 0 && now() < deadline) continue;
    *reason = dead >= 0 ? "rank " + std::to_string(dead) + " exited before all ranks had joined"
                        : "not all ranks have joined";
    unlink(path.c_str());
    delete self;
    return nullptr;
  }
  unlink(path.c_str());  // every rank unlinks it; the memory is freed with the last mapping
  return self;
}

Rendezvous::~Rendezvous() {
  munmap(segment_, bytes_);
}

Message& Rendezvous::message(int from, int to, uint64_t number) {
  auto* all = (Message*)((char*)segment_ + messages_at());
  return all[((size_t)from * ranks_ + to) * kMessageSlots + number % kMessageSlots];
}

char* Rendezvous::collective_bytes(uint64_t number, int rank) {
  return (char*)segment_ + bytes_at(ranks_) + kMaxBytes * ((number % kCollectiveSlots) * ranks_ + rank);
}

char* Rendezvous::message_bytes(int from, int to, uint64_t number) {
  size_t index = ((size_t)from * ranks_ + to) * kMessageSlots + number % kMessageSlots;
  return (char*)segment_ + bytes_at(ranks_) + kMaxBytes * (kCollectiveSlots * ranks_ + index);
}

void Rendezvous::notify() {
  segment_->changes++;
  syscall(SYS_futex, &segment_->changes, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

void Rendezvous::wait(uint32_t seen_changes, int milliseconds) {
  timespec limit{milliseconds / 1000, milliseconds % 1000 * 1000000l};
  syscall(SYS_futex, &segment_->changes, FUTEX_WAIT, seen_changes, &limit, nullptr, 0);
}

int Rendezvous::dead_rank() const {
  for (int i = 0; i < ranks_; i++) {
    const RankInfo& member = segment_->members[i];
    if (i != rank_ && member.pid != 0 && !member.finalized && !is_alive(member.pid)) return i;
  }
  return -1;
}

}  // namespace sim
