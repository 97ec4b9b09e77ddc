// SPDX-License-Identifier: Apache-2.0
// What the queue has to know of a waiting job: the few columns that decide when and where it
// starts.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_QUEUED_JOB_H_
#define BLOCKSWAP_SERVER_SCHEDULER_QUEUED_JOB_H_

#include <cstdint>
#include <limits>
#include <string>

#include "server/jobs/job.h"

namespace blockswap::server {

// Microseconds of the monotonic clock that never come.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct QueuedJob {
  std::string id;
  int64_t sequence = 0;       // of its creation: who was first
  int64_t create_micros = 0;  // by the wall clock: how long it has waited
  int priority = 0;
  bool held = false;
  std::string requested_device = "auto";
  PlanNeeds needs;
  std::string output_directory;
  // By the monotonic clock, so that a step of the wall clock neither ends nor stretches a wait.
  int64_t ready_micros = 0;  // not before (backoff)
  int64_t deadline_micros = kNever;
  double expected_seconds = 0;  // of the run that it waits for; 0: not known
  // As the store has it.
  std::string stored_reason, stored_message;
};

// Both without their times, which QueueIndex puts on the monotonic clock.
QueuedJob QueuedJobOf(const JobRecord& job);
QueuedJob QueuedJobOf(const WaitingJob& job, const std::string& outputs_root);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_QUEUED_JOB_H_
