// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/retry_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/supervisor/exit_classification.h"

namespace blockswap::server {
namespace {

// A tenth of the blocks more, at least one: enough to matter, small enough to keep speed.
int MoreSwap(const JobRecord& job) {
  const int now = std::max(job.needs.blocks_to_swap, std::max(job.swap_override, 0));
  const int more = now + std::max(1, job.needs.max_blocks_to_swap / 10);
  return std::min(more, job.needs.max_blocks_to_swap);
}

RetryDecision RetryWithMoreSwap(const JobRecord& job) {
  RetryDecision decision;
  const int swap = MoreSwap(job);
  if (job.out_of_memory_retried) {
    decision.explanation = "it was already tried with more blocks away";
  } else if (swap <= std::max(job.needs.blocks_to_swap, job.swap_override)) {
    decision.explanation = absl::StrCat("all ", swap, " blocks that can be away already are");
  } else {
    decision.retries = true;
    decision.swap_override = swap;
    decision.explanation = absl::StrCat("trying once with blocks_to_swap ", swap);
  }
  return decision;
}

bool Proved(const AttemptRecord& attempt, const RetryOptions& options,
            const std::vector<CheckpointRecord>& checkpoints) {
  const int64_t lasted = attempt.end_micros - attempt.start_micros;
  if (attempt.start_micros > 0 && attempt.end_step > attempt.start_step &&
      lasted >= std::chrono::duration_cast<std::chrono::microseconds>(options.proof).count()) {
    return true;
  }
  const auto written =
      std::count_if(checkpoints.begin(), checkpoints.end(), [&attempt](const auto& checkpoint) {
        return checkpoint.step > attempt.start_step &&
               checkpoint.create_micros >= attempt.start_micros &&
               checkpoint.create_micros <= attempt.end_micros;
      });
  return attempt.start_micros > 0 && written >= options.proof_checkpoints;
}

// Restarts used up since the last attempt that proved itself.
int64_t RecentRestarts(const std::vector<AttemptRecord>& attempts, int64_t now_micros,
                       const RetryOptions& options, const RetryHistory& history) {
  if (Proved(history.ended, options, history.checkpoints)) return 0;
  const int64_t window =
      std::chrono::duration_cast<std::chrono::microseconds>(options.window).count();
  int64_t restarts = 0;
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    if (attempt->counts_as_retry && attempt->end_micros > now_micros - window) ++restarts;
    if (Proved(*attempt, options, history.checkpoints)) break;
  }
  return restarts;
}

}  // namespace

RetryDecision DecideRetry(const JobRecord& job, const Failure& failure,
                          const std::vector<AttemptRecord>& attempts, int64_t now_micros,
                          const RetryOptions& options, const RetryHistory& history) {
  if (failure.category == FailureCategory::kOutOfMemoryDevice) return RetryWithMoreSwap(job);
  RetryDecision decision;
  if (failure.category == FailureCategory::kTimeout) return decision;  // its message says it all
  if (failure.reason == "SERVER_RESTARTED") {
    decision.retries = true;
    decision.explanation = "going on from the last checkpoint";
    return decision;
  }
  if (!IsRetryable(failure.category) && !failure.retryable) {
    decision.explanation = "a failure of this kind would repeat itself";
    return decision;
  }
  const int64_t recent = RecentRestarts(attempts, now_micros, options, history);
  if (recent >= job.max_restarts) {
    decision.explanation = absl::StrCat("the limit of ", job.max_restarts, " restarts in ",
                                        options.window.count(), " h is reached");
    return decision;
  }
  decision.retries = decision.counts = true;
  // 2^20 is beyond any maximum: keeps the shift defined.
  const auto doublings = std::min<int64_t>(recent, 20);
  const auto backoff = std::min(options.backoff * (int64_t{1} << doublings), options.max_backoff);
  decision.backoff = std::chrono::duration_cast<std::chrono::milliseconds>(
      backoff * (1 - options.jitter * history.jitter));
  decision.explanation = absl::StrCat("restart ", recent + 1, " of at most ", job.max_restarts,
                                      " from the last checkpoint");
  return decision;
}

}  // namespace blockswap::server
