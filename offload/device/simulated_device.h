// SPDX-License-Identifier: Apache-2.0
// A device that exists only in a virtual clock: proves an order of copies and reads right, or says
// what is wrong with it.
//
// Note [Simulated device]
// Every call is given its start and end in virtual time when it is queued: a stream is a time, and
// an event is the time of its last record. That is enough because a wait binds to a record made
// before it. Nothing really runs in parallel, so correctness is not left to luck: each stream
// carries a vector clock, an event carries the clock of its record, and every two accesses to the
// same bytes, of which one writes, must be ordered by those clocks. An order that only happens to
// work out in time is a violation. Real bytes are carried as well: half of the copies, by the seed,
// happen as late as the order allows, and their destination holds rubbish until somebody who is
// ordered behind them looks. Host-side writes of staging code are seen that way too. The same
// virtual clock predicts how long a schedule takes.
#ifndef BLOCKSWAP_OFFLOAD_DEVICE_SIMULATED_DEVICE_H_
#define BLOCKSWAP_OFFLOAD_DEVICE_SIMULATED_DEVICE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/base/mutex.h"
#include "offload/device/device_runtime.h"

namespace blockswap::offload {

// The ordinal, from 1, of the call of each kind that fails; 0: none.
struct SimulatedFailures {
  int copy = 0, record = 0, wait = 0, event = 0, arena = 0, lock = 0;
  // The failing copy, record or wait answers ok and every later call reports it, as a device does.
  bool asynchronous = false;
};

struct SimulatedDeviceOptions {
  uint64_t seed = 1;
  int64_t budget_bytes = 0;  // 0: no limit
  int64_t lockable_bytes = std::numeric_limits<int64_t>::max();
  double h2d_bytes_per_second = 1e9;
  double d2h_bytes_per_second = 1e9;
  absl::Duration latency = absl::Microseconds(10);
  double jitter = 0.0;  // a copy takes between 1 and 1 + jitter times as long, by the seed
  absl::Duration host_call = absl::Microseconds(1);  // what each call costs the host
  bool host_follows_compute =
      false;                // the caller's thread is the compute stream, as on the host device
  bool late_copies = true;  // see the note; false: bytes move when the copy is queued
  bool host_visible = false;
  bool copies_need_pinned_memory = false;
  SimulatedFailures failures = {};
};

enum class AccessKind { kRead, kWrite };

// One access of a stream to device or host bytes, in virtual time.
struct SimulatedAccess {
  Stream stream = Stream::kCompute;
  AccessKind kind = AccessKind::kRead;
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  absl::Duration start, finish;
};

// Thread safety: safe; calls are serialised.
class SimulatedDevice final : public DeviceRuntime {
 public:
  explicit SimulatedDevice(const SimulatedDeviceOptions& options);
  ~SimulatedDevice() override;

  // Queues work of `duration` on the compute stream that accesses `span`. Internal, and a
  // violation, when another stream's access to the same bytes is not ordered before it. Afterwards
  // the bytes at span.data are what compute sees.
  absl::Status NoteComputeUse(DeviceSpan span, absl::Duration duration,
                              AccessKind kind = AccessKind::kRead);
  absl::Status CheckRead(DeviceSpan span) { return NoteComputeUse(span, absl::ZeroDuration()); }

  // Every unordered pair of accesses that was found, in words. Empty: none.
  std::vector<std::string> violations() const;
  std::vector<SimulatedAccess> accesses() const;
  // When the work queued on the compute stream so far ends.
  absl::Duration compute_time() const;
  // True from the injected failure on: what is in device memory then means nothing.
  bool failed() const;
  // Calls made so far, to choose which one should fail.
  SimulatedFailures calls() const;

  DeviceFacts facts() const override;
  MemoryLedger& ledger() override { return ledger_; }
  bool device_memory_is_host_visible() const override { return options_.host_visible; }
  bool copies_need_pinned_memory() const override { return options_.copies_need_pinned_memory; }
  absl::StatusOr<DeviceSpan> AllocateArena(int64_t bytes, MemoryTag tag) override;
  void FreeArena(DeviceSpan arena, MemoryTag tag) override;
  absl::StatusOr<EventId> CreateEvent() override;
  void DestroyEvent(EventId event) override;
  absl::Status Record(EventId event, Stream stream) override;
  absl::Status Wait(Stream stream, EventId event) override;
  bool IsComplete(EventId event) override;
  absl::Status Synchronize(EventId event) override;
  absl::Status SynchronizeStream(Stream stream) override;
  absl::Status CopyToDevice(DeviceSpan destination, const std::byte* source) override;
  absl::Status CopyToHost(std::byte* destination, DeviceSpan source) override;
  absl::Status LockHostMemory(std::byte* data, int64_t bytes) override;
  void UnlockHostMemory(std::byte* data, int64_t bytes) override;
  CopyCounters copies(CopyDirection direction) const override;
  absl::Duration compute_stall() const override;

 private:
  using Clock = std::array<uint64_t, 3>;  // by stream: its last operation that is known to be over
  struct StreamState {
    Clock clock{};
    absl::Duration time;
  };
  struct EventState {
    Clock clock{};
    absl::Duration time;
  };
  struct TrackedAccess {
    SimulatedAccess access;
    uint64_t operation = 0;
  };
  struct PendingCopy {
    Stream stream = Stream::kHostToDevice;
    uint64_t operation = 0;
    std::byte* destination = nullptr;
    const std::byte* source = nullptr;
    int64_t bytes = 0;
  };
  struct Operation {
    Stream stream = Stream::kCompute;
    uint64_t number = 0;
    absl::Duration start{}, finish{};
  };

  // Counts a call; false when it is the one that has to fail.
  bool Passes(int& calls, int failing) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Fail(const std::string& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Enter() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Operation Queue(Stream stream, absl::Duration duration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Track(const Operation& operation, AccessKind kind, const std::byte* data,
                     int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Copy(Stream stream, std::byte* destination, const std::byte* source, int64_t bytes);
  void ApplyCopiesBefore(const Clock& clock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HostCatchesUp(const Clock& clock, absl::Duration time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StreamState& state(Stream stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return streams_[static_cast<size_t>(stream)];
  }

  const SimulatedDeviceOptions options_;
  MemoryLedger ledger_;
  mutable base::Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::array<StreamState, 3> streams_ ABSL_GUARDED_BY(mutex_);
  StreamState host_ ABSL_GUARDED_BY(mutex_);
  std::vector<EventState> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<EventId> free_events_ ABSL_GUARDED_BY(mutex_);
  std::vector<TrackedAccess> tracked_
      ABSL_GUARDED_BY(mutex_);  // what a later access may still conflict with
  std::deque<PendingCopy> pending_ ABSL_GUARDED_BY(mutex_);
  std::vector<SimulatedAccess> accesses_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> violations_ ABSL_GUARDED_BY(mutex_);
  std::array<CopyCounters, 2> copies_ ABSL_GUARDED_BY(mutex_);
  absl::Duration compute_stall_ ABSL_GUARDED_BY(mutex_);
  SimulatedFailures calls_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int64_t locked_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_DEVICE_SIMULATED_DEVICE_H_
