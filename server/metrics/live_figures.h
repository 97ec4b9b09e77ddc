// SPDX-License-Identifier: Apache-2.0
// What running jobs take and move right now, by job: for people who watch, where the metrics are
// for machines that remember.
#ifndef BLOCKSWAP_SERVER_METRICS_LIVE_FIGURES_H_
#define BLOCKSWAP_SERVER_METRICS_LIVE_FIGURES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "offload/base/mutex.h"
#include "server/supervisor/worker_update.h"

namespace blockswap::server {

// Of the last steps of half a minute, without an attempt's first.
struct SwapWindow {
  int64_t steps = 0;
  double step_seconds = 0;  // sum over the steps
  int64_t h2d_bytes = 0, d2h_bytes = 0;
  double h2d_busy_seconds = 0, stall_seconds = 0;
  int64_t hits = 0, late = 0, misses = 0;
};

struct LiveJob {
  std::string slot;
  int attempt = 0;
  bool is_running = false;             // false: the last figures of a worker that has ended
  std::optional<MemoryUpdate> memory;  // as last reported
  SwapCounters swap;                   // since the attempt began
  SwapWindow recent;
  absl::Time report_time;  // of the last report of any kind
};

// Keeps the newest worker of each slot. Thread safety: safe.
class LiveFigures final {
 public:
  // `window`: how far back `recent` looks from the newest step.
  explicit LiveFigures(absl::Duration window = absl::Seconds(30)) : window_(window) {}

  void WorkerStarted(const std::string& slot, const std::string& job, int attempt);
  void WorkerEnded(const std::string& slot);
  void Step(const std::string& slot, const WorkerStep& step, absl::Time now);
  void Memory(const std::string& slot, const MemoryUpdate& memory, absl::Time now);

  // Nothing: the job has no worker, or its slot has served another job since.
  std::optional<LiveJob> Find(const std::string& job) const;

 private:
  struct Sample {
    absl::Time time;
    int64_t steps = 0;
    double step_seconds = 0;
    SwapCounters swap;
  };
  struct Slot {
    std::string job;
    LiveJob live;
    std::deque<Sample> samples;  // at most kMaxSamples, the first one is the window's beginning
  };
  static constexpr size_t kMaxSamples = 256;

  const absl::Duration window_;
  mutable base::Mutex mutex_;
  std::map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_LIVE_FIGURES_H_
