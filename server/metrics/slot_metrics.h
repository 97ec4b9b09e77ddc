// SPDX-License-Identifier: Apache-2.0
// The metric families that have a slot label: one series set a device, however many jobs pass
// through it.
#ifndef BLOCKSWAP_SERVER_METRICS_SLOT_METRICS_H_
#define BLOCKSWAP_SERVER_METRICS_SLOT_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"
#include "server/base/wall_clock.h"
#include "server/metrics/live_figures.h"
#include "server/metrics/slot_memory.h"
#include "server/supervisor/worker_update.h"

namespace blockswap::server {

// Counters are never reset between jobs: an attempt's growing figures are added as differences.
// Thread safety: safe.
class SlotMetrics final {
 public:
  explicit SlotMetrics(prometheus::Registry& registry);

  struct Worker {
    std::string slot, job, gpu, uuid, model;
    int attempt = 0;
    int64_t pid = 0;  // 0: not known here
  };
  // Replaces the info series of the slot and begins its memory peaks anew; the previous attempt's
  // counters stay.
  void WorkerStarted(const Worker& worker);
  // Clears the slot's gauges of the moment, memory peaks are not among them. The info series goes
  // with RemoveInfo, or when the slot's next worker starts.
  void WorkerEnded(const std::string& slot);
  void RemoveInfo(const std::string& slot);
  // Those between WorkerStarted and WorkerEnded, by slot.
  std::vector<Worker> Workers() const;
  SlotMemory& memory() { return memory_; }
  int64_t pinned_bytes() const { return memory_.PinnedBytes(); }

  void Heartbeat(const std::string& slot, double unix_seconds);
  void Ready(const std::string& slot, int64_t start_step, int64_t total_steps);
  void Step(const std::string& slot, const WorkerStep& step, double unix_seconds);
  void Memory(const std::string& slot, const MemoryUpdate& memory);
  // What the worker does from `now` on: time in "sampling" is counted when it ends.
  void Phase(const std::string& slot, const std::string& phase, SteadyTime now = SteadyNow());
  void CheckpointWritten(const std::string& slot, int64_t bytes, double seconds,
                         double unix_seconds);
  void CheckpointFailed();
  // A reason that is none of the known ones counts as OTHER: labels come from a fixed set.
  void Replanned(const std::string& slot, const std::string& reason);
  void Nonfinite(const std::string& slot, const char* where);

  // The same by job, for the HTTP API.
  const LiveFigures& live() const { return live_; }

 private:
  struct Slot {
    SwapCounters last;
    prometheus::Gauge* info = nullptr;
    std::set<prometheus::Gauge*> rates;  // of the moment: nothing of it without a worker
    Worker worker;
    bool has_worker = false;
    bool samples = false;  // in phase "sampling" since:
    SteadyTime sampling_since{};
  };
  void EndSamplingLocked(const std::string& slot, SteadyTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddSwap(const std::string& slot, const SwapCounters& now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  SlotMemory memory_;
  prometheus::Family<prometheus::Gauge>&info_, &heartbeat_, &blocks_, &step_, &target_steps_,
      &progress_time_, &loss_, &learning_rate_, &grad_norm_, &achieved_, &checkpoint_bytes_,
      &checkpoint_time_;
  prometheus::Family<prometheus::Counter>&swap_bytes_, &swap_transfers_, &swap_busy_, &swap_stall_,
      &prefetch_, &steps_, &samples_, &tokens_, &phase_seconds_, &nonfinite_, &checkpoint_writes_,
      &replans_;
  prometheus::Family<prometheus::Histogram>&step_duration_, &checkpoint_seconds_;

  LiveFigures live_;
  mutable base::Mutex mutex_;
  std::map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_SLOT_METRICS_H_
