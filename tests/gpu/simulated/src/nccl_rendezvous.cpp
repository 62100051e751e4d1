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
// As long as torch waits for the other ranks at its store.
constexpr uint64_t kJoinTimeoutNs = 600ull * 1000000000;

size_t messages_at() {
  return (sizeof(Board) + 4095) & ~4095ull;
}
size_t bytes_at(int ranks) {
  return (messages_at() + sizeof(Message) * kMessageSlots * ranks * ranks + 4095) & ~4095ull;
}
// Most of it is never touched, and takes no memory.
size_t segment_bytes(int ranks) {
  return bytes_at(ranks) + kMostBytes * (kCollectiveSlots * ranks + kMessageSlots * ranks * ranks);
}

// A process that has ended may still be in the table, as a zombie, until its parent asks for it.
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
  // The name before the state may hold anything, and ends with the last bracket.
  const char* bracket = strrchr(line, ')');
  return !bracket || !strchr("ZX", bracket[2]);
}

// A segment loses its name when all ranks have joined. Where they never did, it stays behind, named after the
// process that made its id.
void remove_abandoned() {
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
                             std::string* why) {
  remove_abandoned();
  std::string path = kFolder + (kPrefix + name);
  size_t bytes = segment_bytes(ranks);
  int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, bytes) != 0) {
    *why = "cannot create " + path + ": " + strerror(errno);
    if (file >= 0) close(file);
    return nullptr;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  if (memory == MAP_FAILED) {
    *why = "cannot map " + path + ": " + strerror(errno);
    return nullptr;
  }
  auto* self = new Rendezvous((Board*)memory, bytes, rank, ranks);
  Member& me = self->board_->members[rank];
  me.device = physical_device;
  if (me.pid.exchange(getpid()) != 0) {
    *why = "rank " + std::to_string(rank) + " has joined twice";
    delete self;
    return nullptr;
  }
  self->board_->joined++;
  self->notify();

  uint64_t deadline = now() + kJoinTimeoutNs;
  while ((int)self->board_->joined < ranks) {
    uint32_t changes = self->board_->changes;
    if ((int)self->board_->joined >= ranks) break;
    self->wait(changes, 200);
    int missing = self->missing_rank();
    if (missing < 0 && now() < deadline) continue;
    *why = missing >= 0 ? "rank " + std::to_string(missing) + " ended before all ranks had joined"
                        : "not all ranks have joined";
    unlink(path.c_str());
    delete self;
    return nullptr;
  }
  unlink(path.c_str());  // each rank tries: the memory goes with the last process that maps it
  return self;
}

Rendezvous::~Rendezvous() {
  munmap(board_, bytes_);
}

Message& Rendezvous::message(int from, int to, uint64_t number) {
  auto* all = (Message*)((char*)board_ + messages_at());
  return all[((size_t)from * ranks_ + to) * kMessageSlots + number % kMessageSlots];
}

char* Rendezvous::collective_bytes(uint64_t number, int rank) {
  return (char*)board_ + bytes_at(ranks_) + kMostBytes * ((number % kCollectiveSlots) * ranks_ + rank);
}

char* Rendezvous::message_bytes(int from, int to, uint64_t number) {
  size_t index = ((size_t)from * ranks_ + to) * kMessageSlots + number % kMessageSlots;
  return (char*)board_ + bytes_at(ranks_) + kMostBytes * (kCollectiveSlots * ranks_ + index);
}

void Rendezvous::notify() {
  board_->changes++;
  syscall(SYS_futex, &board_->changes, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

void Rendezvous::wait(uint32_t seen_changes, int milliseconds) {
  timespec limit{milliseconds / 1000, milliseconds % 1000 * 1000000l};
  syscall(SYS_futex, &board_->changes, FUTEX_WAIT, seen_changes, &limit, nullptr, 0);
}

int Rendezvous::missing_rank() const {
  for (int i = 0; i < ranks_; i++) {
    const Member& member = board_->members[i];
    if (i != rank_ && member.pid != 0 && !member.finalized && !is_alive(member.pid)) return i;
  }
  return -1;
}

}  // namespace sim
