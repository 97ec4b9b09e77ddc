// SPDX-License-Identifier: Apache-2.0
// Decides for all waiting jobs at once: which start now and where, which are too late, and why the
// others wait.
//
// Order: a point of priority is worth a span of waiting (`aging`), so whoever waits long enough is
// first; equal ones go by age. The first job that cannot start although only jobs of this server
// are in its way gets a reservation on the device where it can start soonest. A later job may pass
// it only where it takes nothing of what is reserved, or is over before the reservation begins;
// where nobody knows when that is, it must be over within `max_delay`. What other programs hold is
// not waited for: a reservation for that would idle the device for nobody knows how long.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_QUEUE_POLICY_H_
#define BLOCKSWAP_SERVER_SCHEDULER_QUEUE_POLICY_H_

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "server/scheduler/queue_state.h"
#include "server/scheduler/queued_job.h"
#include "server/scheduler/wait_reason.h"

namespace blockswap::server {

struct QueueOptions {
  std::chrono::microseconds aging{std::chrono::hours(1)};  // 0: priority is everything
  // A job whose base weights are in memory goes before one that is older by at most this: reading
  // them again would take longer.
  std::chrono::microseconds base_lead{std::chrono::minutes(2)};
  int max_jobs_per_device = 1;
  std::chrono::microseconds max_delay{std::chrono::minutes(10)};
};

enum class Verdict { kStart, kWait, kExpired };

struct QueueDecision {
  size_t job = 0;  // index of it
  Verdict verdict = Verdict::kWait;
  std::string device;    // of kStart
  WaitReason reason;     // of kWait
  int64_t position = 0;  // from 1 among those that go on waiting; 0: held
};

// Indices of `jobs` in the order of the queue. REQUIRES: `jobs` by sequence, rising.
std::vector<size_t> QueueOrder(const std::vector<QueuedJob>& jobs,
                               const std::set<std::string>& loaded_bases,
                               const QueueOptions& options);

// Pure; in the order of the queue. REQUIRES: `jobs` by sequence, rising.
std::vector<QueueDecision> DecideQueue(const std::vector<QueuedJob>& jobs, const QueueState& state,
                                       const QueueOptions& options);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_QUEUE_POLICY_H_
