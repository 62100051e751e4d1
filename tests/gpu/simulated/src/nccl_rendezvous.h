// The shared-memory segment in which the ranks of one communicator meet.
#pragma once

#include <linux/futex.h>
#include <stdint.h>

#include <atomic>
#include <string>

namespace sim {

constexpr int kMaxRanks = 64;
// Maximum bytes of one rank in one collective or message.
constexpr size_t kMaxBytes = 1 << 20;
// Maximum number of collectives in flight, and of messages in flight between two ranks. Further ones wait.
constexpr uint64_t kCollectiveSlots = 8;
constexpr uint64_t kMessageSlots = 4;

// A rank's arrival at a collective. All-zero is a valid initial state of every structure here, because a new
// segment is zero-filled.
struct Arrival {
  std::atomic<uint64_t> arrived;  // the number of the collective, counted from 1
  std::atomic<uint64_t> left;     // the same number, set once the rank has read what it needs
  uint64_t start;                 // CLOCK_MONOTONIC, which all processes of a machine share
  uint64_t signature;             // the parameters with which the rank called the collective
};
struct Collective {
  Arrival ranks[kMaxRanks];
};
struct Message {
  Arrival sender, receiver;
};
struct RankInfo {
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> finalized;
  int32_t device;  // physical
  // ncclCommSplit: the number of splits the rank has reached, and their arguments. No rank is ever two splits
  // ahead of another.
  std::atomic<uint32_t> splits;
  int32_t color[2], key[2];
};
struct Segment {
  std::atomic<uint32_t> changes;  // a futex, incremented on every arrival
  std::atomic<uint32_t> joined;
  RankInfo members[kMaxRanks];
  Collective collectives[kCollectiveSlots];
};

// One rank's view of the segment.
class Rendezvous {
 public:
  // Maps the segment of this name (or creates it) and waits for all ranks. Returns null on failure, with the
  // reason in `reason`.
  static Rendezvous* join(const std::string& name, int rank, int ranks, int physical_device,
                          std::string* reason);
  ~Rendezvous();

  Segment& segment() {
    return *segment_;
  }
  int rank() const {
    return rank_;
  }
  int ranks() const {
    return ranks_;
  }

  // The slot of a collective or of a message, and the bytes that a rank contributes.
  Collective& collective(uint64_t number) {
    return segment_->collectives[number % kCollectiveSlots];
  }
  Message& message(int from, int to, uint64_t number);
  char* collective_bytes(uint64_t number, int rank);
  char* message_bytes(int from, int to, uint64_t number);

  // notify() tells the other ranks that something has changed. wait() blocks until it does, or for a limited
  // time.
  uint32_t changes() const {
    return segment_->changes;
  }
  void notify();
  void wait(uint32_t seen_changes, int milliseconds);

  // A rank whose process has exited, or -1.
  int dead_rank() const;

 private:
  Rendezvous(Segment* segment, size_t bytes, int rank, int ranks)
      : segment_(segment), bytes_(bytes), rank_(rank), ranks_(ranks) {}
  Segment* segment_;
  size_t bytes_;
  int rank_, ranks_;
};

}  // namespace sim
