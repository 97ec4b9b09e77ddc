// SPDX-License-Identifier: Apache-2.0
// A copy lane of the host device: one thread that executes copies, event records and waits in
// order, at a settable speed.
#ifndef BLOCKSWAP_OFFLOAD_DEVICE_HOST_LANE_H_
#define BLOCKSWAP_OFFLOAD_DEVICE_HOST_LANE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "offload/base/mutex.h"
#include "offload/device/device_runtime.h"

namespace blockswap::offload {

using SteadyTime = std::chrono::steady_clock::time_point;

// One mark of an event: the `sequence`-th record of `event`.
struct EventMark {
  EventId event = kNoEvent;
  uint64_t sequence = 0;
};

// The events of a host device. Thread safety: safe.
class HostEventTable {
 public:
  EventId Create();
  void Destroy(EventId event);
  // Opens a new mark: not happened until Complete.
  EventMark BeginRecord(EventId event);
  void Complete(EventMark mark, SteadyTime when);
  // The latest mark made so far; what a wait called now has to wait for.
  EventMark Latest(EventId event) const;
  bool HasHappened(EventMark mark) const;
  bool IsComplete(EventId event) const;
  // Blocks until the mark has happened; returns when the event last happened.
  SteadyTime Await(EventMark mark) const;

 private:
  struct Event {
    uint64_t recorded = 0;
    absl::InlinedVector<uint64_t, 2> pending;  // marks that have not happened
    SteadyTime last_happened{};
  };
  bool HasHappenedLocked(EventMark mark) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  mutable base::CondVar happened_;
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<EventId> free_ ABSL_GUARDED_BY(mutex_);
};

// Speed of a lane. Zero rate: as fast as memcpy.
struct LaneSpeed {
  double bytes_per_second = 0;
  absl::Duration latency = absl::ZeroDuration();  // of each copy
};

// Owns: its thread. Thread safety: safe.
// Invariant: a copy ends no earlier than start + latency + bytes / rate, where start is the end of
// the copy queued before it when the two were queued back to back: deadlines are absolute, so late
// wake-ups do not add up.
class HostLane {
 public:
  HostLane(std::string thread_name, LaneSpeed speed, HostEventTable* events);
  ~HostLane();
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  void QueueCopy(std::byte* destination, const std::byte* source, int64_t bytes);
  void QueueRecord(EventMark mark);
  void QueueWait(EventMark mark);
  // Blocks until everything queued before the call is done.
  void Synchronize();
  // Makes the lane finish what is queued without pacing and end. The destructor joins.
  void Stop();
  CopyCounters counters() const;

 private:
  enum class Kind { kCopy, kRecord, kWait };
  struct Item {
    Kind kind = Kind::kWait;
    std::byte* destination = nullptr;
    const std::byte* source = nullptr;
    int64_t bytes = 0;
    EventMark mark{};
    SteadyTime queued_at{};
  };

  void Queue(Item item);
  void Loop();
  void Execute(const Item& item);
  void ExecuteCopy(const Item& item);

  const std::string thread_name_;
  const LaneSpeed speed_;
  HostEventTable* const events_;

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t queued_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CopyCounters counters_ ABSL_GUARDED_BY(mutex_);

  SteadyTime cursor_{};  // the lane's thread only: when the work done so far ended
  std::thread thread_;   // last: starts when everything above exists
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_DEVICE_HOST_LANE_H_
