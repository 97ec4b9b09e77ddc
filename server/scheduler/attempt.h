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
#include "server/scheduler/link_watch.h"
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
  std::string job_uid, device, output_directory;
  std::string slot;      // of the metrics; the device unless it shares that
  std::string base_key;  // of the base weights it shares
  // What it was admitted with.
  int64_t device_bytes = 0, host_bytes = 0, disk_bytes = 0;
  uint64_t disk_volume = 0;     // where it writes
  double expected_seconds = 0;  // by the plan; 0: not known
  std::unique_ptr<WorkerHandle> handle;
  LinkWatch link_watch;
  bool link_warned = false;  // once an attempt, whatever is slow
  KillLadder ladder;
  AttemptRecord record;
  SteadyTime started{}, last_heartbeat{}, last_progress{};
  bool adopted = false;  // from an earlier server
  SteadyTime attached_at{}, ready_at{};  // parts of the start, for the metrics
  bool attached = false, ready = false, stepped = false;
  int64_t handling_sequence = 0;  // of the message that is being applied
  std::string phase = "loading";
  std::optional<ExitingUpdate> report;
  Failure imposed;
  int64_t last_step = 0, total_steps = 0;
  std::deque<double> recent_step_seconds;
  // Of the last stored step; unknown to a server that adopted the worker, until the next step.
  std::optional<SwapCounters> last_swap = SwapCounters{};

  void NoteStep(const WorkerStep& step, SteadyTime now);
  double MedianStepSeconds() const;
};

// Which clock ran out, as the failure the server will report; nothing while all is well.
std::optional<Failure> CheckClocks(const RunningAttempt& attempt, SteadyTime now,
                                   const ClockOptions& options);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_ATTEMPT_H_
