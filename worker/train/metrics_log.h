// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object a step, each step once, across any number of crashes and resumes.
#ifndef BLOCKSWAP_WORKER_TRAIN_METRICS_LOG_H_
#define BLOCKSWAP_WORKER_TRAIN_METRICS_LOG_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/channel/reporter.h"

namespace blockswap::worker {

// Swap figures of one step alone, from two readings of the counters that only grow.
struct StepMetrics {
  StepReport report;          // swap counters: since the attempt began
  offload::SwapStats before;  // the same counters when the step began
  bool skipped =
      false;  // the step was left out because it was not finite: loss and norm are null then
};

// The line without its newline: step, epoch, loss, learning_rate, grad_norm, seconds, samples,
// h2d_bytes, d2h_bytes, stall_seconds, hits, late, misses, device_bytes_peak, and phases. Doubles
// are written so that they read back to the same bits.
std::string MetricsLine(const StepMetrics& metrics);

// Owns: the open file. Thread safety: the trainer's thread.
class MetricsLog {
 public:
  // Keeps the lines of steps up to `last_step` (rewritten atomically; damaged and repeated ones are
  // dropped) and appends after them. 0 starts anew.
  static absl::StatusOr<std::unique_ptr<MetricsLog>> Open(const std::string& path,
                                                          int64_t last_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Writes `line`. Lines that the disk refuses are kept and written before the next one, so a full
  // disk leaves no hole and no half line; ResourceExhausted says that lines are waiting.
  absl::Status Append(const std::string& line);
  // Writes what waits and forces it to disk: a checkpoint must not be newer than its metrics.
  absl::Status Sync();

 private:
  MetricsLog(std::string path, int descriptor, int64_t end)
      : path_(std::move(path)), descriptor_(descriptor), end_(end) {}
  absl::Status Flush();

  const std::string path_;
  const int descriptor_;
  int64_t end_;          // bytes that are whole lines
  std::string waiting_;  // lines not written yet
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_METRICS_LOG_H_
