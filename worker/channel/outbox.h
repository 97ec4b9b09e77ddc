// SPDX-License-Identifier: Apache-2.0
// The messages of a worker that the server has not acknowledged yet: numbered when first sent,
// repeated after a reconnect, bounded.
#ifndef BLOCKSWAP_WORKER_CHANNEL_OUTBOX_H_
#define BLOCKSWAP_WORKER_CHANNEL_OUTBOX_H_

#include <cstdint>
#include <deque>

#include "blockswap/v1/worker.pb.h"

namespace blockswap::worker {

// Purpose: keeps what must arrive in order and exactly once from the server's view, however often
// the stream breaks. Thread safety: none; the owner locks. Invariants: (1) numbers grow by one and
// never change once given; (2) only messages without a number are merged or dropped: steps in a row
// share a batch, the newest memory report replaces an older one, and when the server stays away
// long enough for kMaxWaitingSteps, every second step goes (counters in steps are cumulative, so no
// sum is lost).
class Outbox final {
 public:
  static constexpr int kStepsPerBatch = 500;  // about 200 KiB; the protocol allows 1 MiB
  static constexpr int kMaxWaitingSteps = 20000;
  static constexpr int kMaxWaitingWarnings = 1000;
  static constexpr int kWindow = 64;  // numbered messages that may be unacknowledged

  void Push(v1::WorkerMessage message);

  // The next message to send on this stream, or null: nothing to send, or the window is full. Valid
  // until the next call of anything else here.
  const v1::WorkerMessage* TakeNext();
  bool HasNext() const;

  // Forgets numbered messages up to and including `sequence`.
  void Acknowledge(int64_t sequence);
  // A new stream begins: what is numbered and unacknowledged is sent again, first.
  void Rewind() { next_ = 0; }

  // True when everything pushed was acknowledged.
  bool empty() const { return numbered_.empty() && waiting_.empty(); }
  int64_t last_sequence() const { return last_sequence_; }
  int waiting_steps() const { return waiting_steps_; }

 private:
  void ThinWaitingSteps();

  std::deque<v1::WorkerMessage> numbered_;
  size_t next_ = 0;  // of numbered_: the first one not sent on this stream
  std::deque<v1::WorkerMessage> waiting_;
  int64_t last_sequence_ = 0;
  int waiting_steps_ = 0;
  int waiting_warnings_ = 0;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CHANNEL_OUTBOX_H_
