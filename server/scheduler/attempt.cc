// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/attempt.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

constexpr size_t kStepsRemembered = 32;
constexpr double kStallSteps = 20;  // a step that takes this many medians is no slow step any more

Failure Stalled(const char* reason, std::string message) {
  Failure failure;
  failure.category = FailureCategory::kStalled;
  failure.reason = reason;
  failure.message = std::move(message);
  failure.retryable = true;
  return failure;
}

int64_t Seconds(SteadyTime::duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

}  // namespace

void RunningAttempt::NoteStep(const WorkerStep& step, SteadyTime now) {
  last_step = step.step;
  last_progress = now;
  recent_step_seconds.push_back(step.seconds);
  if (recent_step_seconds.size() > kStepsRemembered) recent_step_seconds.pop_front();
}

double RunningAttempt::MedianStepSeconds() const {
  if (recent_step_seconds.empty()) return 0;
  std::vector<double> sorted(recent_step_seconds.begin(), recent_step_seconds.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::optional<Failure> CheckClocks(const RunningAttempt& attempt, SteadyTime now,
                                   const ClockOptions& options) {
  if (!attempt.attached) {
    if (now - attempt.started < options.attach) return std::nullopt;
    return Stalled("ATTACH_TIMEOUT",
                   absl::StrCat("the worker did not connect within ",
                                Seconds(now - attempt.started), " s of its start"));
  }
  if (now - attempt.last_heartbeat >= options.heartbeat) {
    return Stalled("HEARTBEAT_LOST", absl::StrCat("the worker has given no sign of life for ",
                                                  Seconds(now - attempt.last_heartbeat), " s"));
  }
  // Loading, sampling and writing have no steps; only training promises progress.
  if (attempt.phase != "training") return std::nullopt;
  const auto patience = std::max<SteadyTime::duration>(
      options.progress, ToMicros(attempt.MedianStepSeconds() * kStallSteps));
  if (now - attempt.last_progress < patience) return std::nullopt;
  return Stalled("NO_PROGRESS",
                 absl::StrCat("no step was finished for ", Seconds(now - attempt.last_progress),
                              " s after step ", attempt.last_step));
}

}  // namespace blockswap::server
