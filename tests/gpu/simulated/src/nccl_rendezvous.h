// Where the ranks of one communicator meet: a segment of shared memory that all of them map.
#pragma once

#include <linux/futex.h>
#include <stdint.h>

#include <atomic>
#include <string>

namespace sim {

constexpr int kMostRanks = 64;
// Bytes of one rank that one collective, or one message, can carry.
constexpr size_t kMostBytes = 1 << 20;
// How many collectives, and how many messages between two ranks, can be under way at once. Further ones wait.
constexpr uint64_t kCollectiveSlots = 8;
constexpr uint64_t kMessageSlots = 4;

// A collective as a rank arrives at it. Zeros are a valid start of everything here: a new segment holds them.
struct Arrival {
  std::atomic<uint64_t> arrived;  // the number of the collective, counted from 1
  std::atomic<uint64_t> left;     // the same, once the rank has taken what it needs
  uint64_t start;                 // CLOCK_MONOTONIC is one for all processes of a machine
  uint64_t signature;             // what the rank believes the collective to be
};
struct Collective {
  Arrival ranks[kMostRanks];
};
struct Message {
  Arrival sender, receiver;
};
struct Member {
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> finalized;
  int32_t device;  // physical
  // ncclCommSplit: how many the rank has come to, and what it asked for. No rank is two ahead of another.
  std::atomic<uint32_t> splits;
  int32_t color[2], key[2];
};
struct Board {
  std::atomic<uint32_t> changes;  // a futex: grows with each arrival
  std::atomic<uint32_t> joined;
  Member members[kMostRanks];
  Collective collectives[kCollectiveSlots];
};

// One rank's view of the segment.
class Rendezvous {
 public:
  // Maps the segment of this name, creates it if no other rank has, and waits for all ranks.
  // Nothing where that fails; `why` says it.
  static Rendezvous* join(const std::string& name, int rank, int ranks, int physical_device,
                          std::string* why);
  ~Rendezvous();

  Board& board() {
    return *board_;
  }
  int rank() const {
    return rank_;
  }
  int ranks() const {
    return ranks_;
  }

  // The slot of a collective, of a message, and the bytes that a rank gives to it.
  Collective& collective(uint64_t number) {
    return board_->collectives[number % kCollectiveSlots];
  }
  Message& message(int from, int to, uint64_t number);
  char* collective_bytes(uint64_t number, int rank);
  char* message_bytes(int from, int to, uint64_t number);

  // Tells the other ranks that something has changed; waits until it does, or for a while.
  uint32_t changes() const {
    return board_->changes;
  }
  void notify();
  void wait(uint32_t seen_changes, int milliseconds);

  // A rank whose process has ended, or -1.
  int missing_rank() const;

 private:
  Rendezvous(Board* board, size_t bytes, int rank, int ranks)
      : board_(board), bytes_(bytes), rank_(rank), ranks_(ranks) {}
  Board* board_;
  size_t bytes_;
  int rank_, ranks_;
};

}  // namespace sim
