// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/outbox.h"

#include <utility>

namespace blockswap::worker {
namespace {

// Appends the steps of `from` to `to` when both are step batches and the sum fits in one.
bool MergeSteps(const v1::WorkerMessage& from, v1::WorkerMessage* to) {
  if (!from.has_steps() || !to->has_steps()) return false;
  if (from.steps().steps_size() + to->steps().steps_size() > Outbox::kStepsPerBatch) return false;
  to->mutable_steps()->MergeFrom(from.steps());
  return true;
}

}  // namespace

void Outbox::Push(v1::WorkerMessage message) {
  message.clear_sequence();
  if (message.has_steps()) {
    waiting_steps_ += message.steps().steps_size();
    if (waiting_.empty() || !MergeSteps(message, &waiting_.back()))
      waiting_.push_back(std::move(message));
    if (waiting_steps_ > kMaxWaitingSteps) ThinWaitingSteps();
    return;
  }
  if (message.has_memory()) {
    for (v1::WorkerMessage& other : waiting_) {
      if (!other.has_memory()) continue;
      other = std::move(message);
      return;
    }
  }
  if (message.has_phase() && !waiting_.empty() && waiting_.back().has_phase()) {
    waiting_.back() = std::move(message);
    return;
  }
  if (message.has_warning()) {
    if (waiting_warnings_ >= kMaxWaitingWarnings) return;
    ++waiting_warnings_;
  }
  waiting_.push_back(std::move(message));
}

bool Outbox::HasNext() const {
  return next_ < numbered_.size() || (!waiting_.empty() && numbered_.size() < kWindow);
}

const v1::WorkerMessage* Outbox::TakeNext() {
  if (!HasNext()) return nullptr;
  if (next_ == numbered_.size()) {
    v1::WorkerMessage& message = waiting_.front();
    if (message.has_steps()) waiting_steps_ -= message.steps().steps_size();
    if (message.has_warning()) --waiting_warnings_;
    message.set_sequence(++last_sequence_);
    numbered_.push_back(std::move(message));
    waiting_.pop_front();
  }
  return &numbered_[next_++];
}

void Outbox::Acknowledge(int64_t sequence) {
  while (!numbered_.empty() && numbered_.front().sequence() <= sequence) {
    numbered_.pop_front();
    if (next_ > 0) --next_;
  }
}

void Outbox::ThinWaitingSteps() {
  std::deque<v1::WorkerMessage> thinned;
  waiting_steps_ = 0;
  for (v1::WorkerMessage& message : waiting_) {
    if (message.has_steps()) {
      v1::StepBatch kept;
      const int count = message.steps().steps_size();
      // The last step of a batch stays: it holds the newest counters.
      for (int i = (count + 1) % 2; i < count; i += 2) {
        *kept.add_steps() = std::move(*message.mutable_steps()->mutable_steps(i));
      }
      waiting_steps_ += kept.steps_size();
      *message.mutable_steps() = std::move(kept);
      if (!thinned.empty() && MergeSteps(message, &thinned.back())) continue;
    }
    thinned.push_back(std::move(message));
  }
  waiting_ = std::move(thinned);
}

}  // namespace blockswap::worker
