// SPDX-License-Identifier: Apache-2.0
#include "offload/device/host_lane.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"

namespace blockswap::offload {

EventId HostEventTable::Create() {
  base::MutexLock lock(mutex_);
  if (!free_.empty()) {
    const EventId event = free_.back();
    free_.pop_back();
    return event;
  }
  events_.emplace_back();
  return static_cast<EventId>(events_.size()) - 1;
}

void HostEventTable::Destroy(EventId event) {
  base::MutexLock lock(mutex_);
  // Sequence numbers go on when the slot is reused, so a record still queued cannot be taken for a
  // new one.
  free_.push_back(event);
}

EventMark HostEventTable::BeginRecord(EventId event) {
  base::MutexLock lock(mutex_);
  Event& state = events_[static_cast<size_t>(event)];
  state.pending.push_back(++state.recorded);
  return EventMark{event, state.recorded};
}

void HostEventTable::Complete(EventMark mark, SteadyTime when) {
  base::MutexLock lock(mutex_);
  Event& state = events_[static_cast<size_t>(mark.event)];
  state.pending.erase(absl::c_find(state.pending, mark.sequence));
  state.last_happened = std::max(state.last_happened, when);
  happened_.SignalAll();
}

EventMark HostEventTable::Latest(EventId event) const {
  base::MutexLock lock(mutex_);
  return EventMark{event, events_[static_cast<size_t>(event)].recorded};
}

bool HostEventTable::HasHappenedLocked(EventMark mark) const {
  return !absl::c_linear_search(events_[static_cast<size_t>(mark.event)].pending, mark.sequence);
}

bool HostEventTable::HasHappened(EventMark mark) const {
  base::MutexLock lock(mutex_);
  return HasHappenedLocked(mark);
}

bool HostEventTable::IsComplete(EventId event) const { return HasHappened(Latest(event)); }

SteadyTime HostEventTable::Await(EventMark mark) const {
  base::MutexLock lock(mutex_);
  while (!HasHappenedLocked(mark)) happened_.Wait(mutex_);
  return events_[static_cast<size_t>(mark.event)].last_happened;
}

HostLane::HostLane(std::string thread_name, LaneSpeed speed, HostEventTable* events)
    : thread_name_(std::move(thread_name)),
      speed_(speed),
      events_(events),
      thread_([this] { Loop(); }) {}

HostLane::~HostLane() {
  Stop();
  thread_.join();
}

void HostLane::Stop() {
  base::MutexLock lock(mutex_);
  stopping_ = true;
  changed_.SignalAll();
}

void HostLane::QueueCopy(std::byte* destination, const std::byte* source, int64_t bytes) {
  Item item{.kind = Kind::kCopy};
  item.destination = destination;
  item.source = source;
  item.bytes = bytes;
  Queue(item);
}

void HostLane::QueueRecord(EventMark mark) { Queue(Item{.kind = Kind::kRecord, .mark = mark}); }

void HostLane::QueueWait(EventMark mark) { Queue(Item{.kind = Kind::kWait, .mark = mark}); }

void HostLane::Queue(Item item) {
  item.queued_at = std::chrono::steady_clock::now();
  base::MutexLock lock(mutex_);
  queue_.push_back(item);
  ++queued_;
  changed_.SignalAll();
}

void HostLane::Synchronize() {
  base::MutexLock lock(mutex_);
  const uint64_t target = queued_;
  while (done_ < target) changed_.Wait(mutex_);
}

CopyCounters HostLane::counters() const {
  base::MutexLock lock(mutex_);
  return counters_;
}

void HostLane::Loop() {
  pthread_setname_np(pthread_self(), thread_name_.c_str());
  while (true) {
    Item item{.kind = Kind::kWait};
    {
      base::MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
      if (queue_.empty()) return;
      item = queue_.front();
      queue_.pop_front();
    }
    Execute(item);
    base::MutexLock lock(mutex_);
    ++done_;
    changed_.SignalAll();
  }
}

void HostLane::Execute(const Item& item) {
  switch (item.kind) {
    case Kind::kCopy:
      ExecuteCopy(item);
      return;
    case Kind::kRecord:
      events_->Complete(item.mark, std::max(cursor_, item.queued_at));
      return;
    case Kind::kWait:
      // The lane was idle until the event happened: the next copy cannot have started before.
      cursor_ = std::max(cursor_, events_->Await(item.mark));
      return;
  }
}

void HostLane::ExecuteCopy(const Item& item) {
  const SteadyTime start = std::max(cursor_, item.queued_at);
  double seconds = absl::ToDoubleSeconds(speed_.latency);
  if (speed_.bytes_per_second > 0) {
    seconds += static_cast<double>(item.bytes) / speed_.bytes_per_second;
  }
  const SteadyTime deadline =
      start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                  std::chrono::duration<double>(seconds));
  std::memcpy(item.destination, item.source, static_cast<size_t>(item.bytes));
  // A memcpy slower than the wanted rate is real time; a late wake-up is not.
  cursor_ = std::max(deadline, std::chrono::steady_clock::now());
  base::MutexLock lock(mutex_);
  while (!stopping_ && std::chrono::steady_clock::now() < deadline) {
    changed_.WaitUntil(mutex_, deadline);
  }
  counters_.bytes += item.bytes;
  ++counters_.transfers;
  counters_.busy += absl::FromChrono(cursor_ - start);
}

}  // namespace blockswap::offload
