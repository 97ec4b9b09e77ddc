// SPDX-License-Identifier: Apache-2.0
// Whether and when a failed attempt is followed by another one.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_RETRY_POLICY_H_
#define BLOCKSWAP_SERVER_SCHEDULER_RETRY_POLICY_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "server/jobs/job.h"

namespace blockswap::server {

struct RetryOptions {
  std::chrono::milliseconds backoff{1000};  // before the second attempt; doubles with each failure
  std::chrono::milliseconds max_backoff{360000};
  std::chrono::hours window{24};  // restarts older than this are forgotten
};

struct RetryDecision {
  bool retries = false;
  bool counts = false;  // uses up one of job.max_restarts
  std::chrono::milliseconds backoff{0};
  int swap_override = -1;   // blocks to swap in the next attempt; -1: unchanged
  std::string explanation;  // one clause for the event
};

// Pure. `attempts` are the job's earlier ones, without the one that just failed.
RetryDecision DecideRetry(const JobRecord& job, const Failure& failure,
                          const std::vector<AttemptRecord>& attempts, int64_t now_micros,
                          const RetryOptions& options);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_RETRY_POLICY_H_
