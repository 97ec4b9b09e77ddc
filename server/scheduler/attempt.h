// SPDX-License-Identifier: Apache-2.0
// One running worker as the scheduler sees it: its clocks, its last words, how far it is on the way
// out.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_ATTEMPT_H_
#define BLOCKSWAP_SERVER_SCHEDULER_ATTEMPT_H_

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "server/jobs/job.h"
#include "server/supervisor/exit_classification.h"
#include "server/supervisor/kill_ladder.h"
#include "server/supervisor/worker_launcher.h"

namespace blockswap::server {

struct ClockOptions {
  std::chrono::milliseconds attach{60000};     // from the start to the worker's first word
  std::chrono::milliseconds heartbeat{30000};  // between two of them
  std::chrono::milliseconds progress{
      120000};  // without a step while training; at least 20 median steps
};

// Thread safety: the scheduler's thread only.
struct RunningAttempt {
  RunningAttempt(AttemptKey attempt_key, KillLadderOptions ladder_options)
      : key(std::move(attempt_key)), ladder(ladder_options) {}

  AttemptKey key;
  std::string job_uid, device, model;
  std::unique_ptr<WorkerHandle> handle;
  bool link_warned = false;
  int64_t granted_bytes = 0;  // of device memory, to a job whose budget is auto
  KillLadder ladder;
  AttemptRecord record;
  SteadyTime started{}, last_heartbeat{}, last_progress{};
  bool attached = false, ready = false, stepped = false;
  std::string phase = "loading";
  std::optional<ExitingUpdate> report;
  Failure imposed;
  int64_t last_step = 0, total_steps = 0;
  std::deque<double> recent_step_seconds;
  SwapCounters last_swap;  // of the last stored step

  void NoteStep(const WorkerStep& step, SteadyTime now);
  double MedianStepSeconds() const;
};

// Which clock ran out, as the failure the server will report; nothing while all is well.
std::optional<Failure> CheckClocks(const RunningAttempt& attempt, SteadyTime now,
                                   const ClockOptions& options);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_ATTEMPT_H_
