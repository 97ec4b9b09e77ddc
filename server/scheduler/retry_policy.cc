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

}  // namespace

RetryDecision DecideRetry(const JobRecord& job, const Failure& failure,
                          const std::vector<AttemptRecord>& attempts, int64_t now_micros,
                          const RetryOptions& options) {
  if (failure.category == FailureCategory::kOutOfMemoryDevice) return RetryWithMoreSwap(job);
  RetryDecision decision;
  if (!IsRetryable(failure.category)) {
    decision.explanation = "a failure of this kind would repeat itself";
    return decision;
  }
  const int64_t window =
      std::chrono::duration_cast<std::chrono::microseconds>(options.window).count();
  const auto recent =
      std::count_if(attempts.begin(), attempts.end(), [=](const AttemptRecord& attempt) {
        return attempt.counts_as_retry && attempt.end_micros > now_micros - window;
      });
  if (recent >= job.max_restarts) {
    decision.explanation = absl::StrCat("the limit of ", job.max_restarts, " restarts in ",
                                        options.window.count(), " h is reached");
    return decision;
  }
  decision.retries = decision.counts = true;
  // 2^20 is beyond any maximum: keeps the shift defined.
  const auto doublings = std::min<int64_t>(recent, 20);
  decision.backoff = std::min(options.backoff * (int64_t{1} << doublings), options.max_backoff);
  decision.explanation = absl::StrCat("restart ", recent + 1, " of at most ", job.max_restarts,
                                      " from the last checkpoint");
  return decision;
}

}  // namespace blockswap::server
