// SPDX-License-Identifier: Apache-2.0
// The Reporter of a worker that a person started: progress on a stream, a bar where it is a
// terminal and now and then a line elsewhere.
#ifndef BLOCKSWAP_WORKER_CHANNEL_CONSOLE_REPORTER_H_
#define BLOCKSWAP_WORKER_CHANNEL_CONSOLE_REPORTER_H_

#include <atomic>
#include <functional>
#include <ostream>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "worker/channel/reporter.h"

namespace blockswap::worker {

struct ConsoleReporterOptions {
  std::ostream* out = nullptr;  // outlives the reporter
  bool is_terminal = false;     // draw a bar over itself
  int width = 80;
  absl::Duration bar_interval = absl::Milliseconds(100);
  absl::Duration line_interval = absl::Seconds(5);
  std::function<absl::Time()> now = absl::Now;
};

// Options for the standard error stream of this process: honours TERM=dumb and the terminal's
// width.
ConsoleReporterOptions StandardErrorOptions();

class ConsoleReporter final : public Reporter {
 public:
  explicit ConsoleReporter(ConsoleReporterOptions options) : options_(std::move(options)) {}
  ~ConsoleReporter() override;

  void Phase(absl::string_view phase) override;
  void LoadProgress(int64_t bytes_done, int64_t bytes_total) override;
  void Ready(const ReadyReport& ready) override;
  void Step(const StepReport& step) override;
  void Memory(const MemoryReport& memory) override;
  void Replanned(const PlanReport& plan) override;
  void CheckpointCommitted(int64_t step, const std::string& directory,
                           const std::string& manifest_sha256, int64_t bytes,
                           double seconds) override;
  void SampleReady(int64_t step, const std::string& file) override;
  void Warning(absl::string_view reason, const std::string& message) override;
  void Exiting(const ExitReport& report) override;

  StopRequest stop_requested() override { return stop_.load(std::memory_order_relaxed); }
  bool TakeCheckpointRequest() override { return false; }
  bool TakeSampleRequest() override { return false; }

  // Safe in a signal handler and on any thread.
  void RequestStop(StopRequest request) { stop_.store(request, std::memory_order_relaxed); }

 private:
  void PrintLine(const std::string& text);
  void EraseBar();

  const ConsoleReporterOptions options_;
  bool bar_drawn_ = false;
  absl::Time last_print_ = absl::InfinitePast();
  absl::Time last_load_print_ = absl::InfinitePast();
  std::string phase_;
  int64_t total_steps_ = 0;
  double mean_seconds_ = 0;  // of a step, exponentially weighted
  absl::Duration last_stall_;
  std::atomic<StopRequest> stop_{StopRequest::kNone};
  static_assert(std::atomic<StopRequest>::is_always_lock_free);
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CHANNEL_CONSOLE_REPORTER_H_
