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
  std::chrono::milliseconds backoff{10000};  // before the second attempt; doubles with each failure
  std::chrono::milliseconds max_backoff{360000};
  std::chrono::hours window{24};  // restarts older than this are forgotten
  // An attempt that trained so long, or wrote so many new checkpoints, has proved that the job can
  // go on: failures before it count no more.
  std::chrono::minutes proof{60};
  int proof_checkpoints = 3;
  double jitter = 0.2;  // of the backoff, so that jobs that failed together do not start together
};

// What else is known about the job; nothing: only counts matter.
struct RetryHistory {
  AttemptRecord ended;  // the attempt that just failed
  std::vector<CheckpointRecord> checkpoints;
  double jitter = 0;  // random, in [0, 1)
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
                          const RetryOptions& options, const RetryHistory& history = {});

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_RETRY_POLICY_H_
