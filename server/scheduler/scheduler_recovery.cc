// SPDX-License-Identifier: Apache-2.0
// What a restarted server does with the workers of the one before.
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/wall_clock.h"
#include "server/jobs/transitions.h"
#include "server/scheduler/scheduler.h"
#include "server/supervisor/exit_report.h"
#include "server/supervisor/process_identity.h"

namespace blockswap::server {

absl::Status Scheduler::Recover() {
  // Before the queue is read: no change falls between.
  store_.SetJobListener([this](const JobRecord& job) { NoteJob(job); });
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto interrupted, store_.JobsWithWorkers());
  for (const JobRecord& job : interrupted) BLOCKSWAP_RETURN_IF_ERROR(RecoverJob(job));
  launcher_.RemoveLeftovers();
  return LoadQueue();
}

absl::Status Scheduler::RecoverJob(const JobRecord& job) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto attempts, store_.ListAttempts(job.uid));
  if (attempts.empty() || attempts.back().number != job.attempt) {
    return RequeueInterrupted(job, {}, "its worker was not started yet");
  }
  const AttemptRecord& last = attempts.back();
  const absl::Status adopted = AdoptWorker(job, last);
  if (adopted.ok()) return absl::OkStatus();
  // It ended while there was no server: if it said how, that is how the attempt ended.
  if (absl::IsNotFound(adopted) && ReadExitReport(job.output_directory, last.number).has_value()) {
    const std::unique_ptr<RunningAttempt> attempt = RecoveredAttempt(job, last);
    ProcessExit exit;
    exit.known = false;
    return SettleExit(*attempt, exit);
  }
  const OrphanFate fate =
      KillOrphan(last.pid, last.process_start_time, last.boot_id, options_.orphan_patience);
  if (fate == OrphanFate::kStillThere) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker process ", last.pid, " of job ", job.id,
                     " cannot be ended; end it before the server starts, two workers may not write "
                     "one job"));
  }
  return RequeueInterrupted(
      job, attempts,
      absl::StrCat(adopted.message(), fate == OrphanFate::kKilled ? "; the worker was ended" : ""));
}

std::unique_ptr<RunningAttempt> Scheduler::RecoveredAttempt(const JobRecord& job,
                                                            const AttemptRecord& record) const {
  auto attempt =
      std::make_unique<RunningAttempt>(AttemptKey{job.id, record.number}, options_.ladder);
  attempt->job_uid = job.uid;
  attempt->device = record.device;
  attempt->output_directory = job.output_directory;
  attempt->record = record;
  NoteNeeds(job, *attempt);
  attempt->adopted = true;
  attempt->ladder.AllowForCheckpoint(record.checkpoint_seconds);
  attempt->started = attempt->last_heartbeat = attempt->last_progress = SteadyNow();
  // Whether it had begun to train: its Ready message was stored with the state it led to.
  attempt->ready = job.state == JobState::kRunning || !job.progress.phase.empty();
  if (!job.progress.phase.empty()) attempt->phase = job.progress.phase;
  attempt->last_step = job.progress.step;
  attempt->total_steps = job.progress.total_steps;
  attempt->last_swap.reset();
  return attempt;
}

absl::Status Scheduler::AdoptWorker(const JobRecord& job, const AttemptRecord& record) {
  std::unique_ptr<RunningAttempt> attempt = RecoveredAttempt(job, record);
  BLOCKSWAP_ASSIGN_OR_RETURN(
      attempt->handle,
      launcher_.Adopt({attempt->key, job.uid, job.output_directory, record}, *this));
  const absl::Status claimed = devices_.Claim(record.device, job.id, attempt->device_bytes,
                                              options_.queue.max_jobs_per_device);
  if (!claimed.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("its worker's device is not to be had: ", claimed.message()));
  }
  const auto note = [&record](JobRecord& current, JobChange& change) {
    const std::string message = absl::StrCat("the server was restarted; worker ", record.pid,
                                             " of attempt ", record.number, " goes on");
    // Of a job that is on its way out the reason says who wanted it.
    if (current.state == JobState::kStarting || current.state == JobState::kRunning) {
      current.state_reason = "WORKER_ADOPTED";
      current.state_message = message;
    }
    change.events.push_back(MakeEvent(EventType::kStateChanged, "WORKER_ADOPTED", message));
    return absl::OkStatus();
  };
  const auto noted = store_.UpdateJob(job.id, note);
  if (!noted.ok()) {
    devices_.Release(record.device, job.id);
    return noted.status();
  }
  LogInfo("job {}: worker {} of attempt {} adopted", job.id, record.pid, record.number);
  std::string uuid;
  for (const DeviceState& device : devices_.List()) {
    if (device.name == record.device) uuid = device.uuid;
  }
  metrics_.slots().WorkerStarted(
      {attempt->slot, job.id, record.device, uuid, job.needs.architecture, record.number,
       record.pid});
  RunningAttempt& placed = *(running_[job.id] = std::move(attempt));
  // What the earlier server asked for may not have reached it.
  const StopMode stop = job.state == JobState::kSuspending   ? StopMode::kSuspend
                        : job.state != JobState::kCancelling ? StopMode::kNone
                        : job.stop_mode == StopMode::kNone   ? StopMode::kGraceful
                                                             : job.stop_mode;
  if (stop != StopMode::kNone) {
    for (const LadderAction action : placed.ladder.Begin(stop, SteadyNow())) {
      Perform(placed, action);
    }
  }
  return absl::OkStatus();
}

absl::Status Scheduler::RequeueInterrupted(const JobRecord& job,
                                           const std::vector<AttemptRecord>& attempts,
                                           const std::string& how) {
  const auto settle = [&](JobRecord& current, JobChange& change) {
    if (!attempts.empty()) {
      change.attempt = attempts.back();
      change.attempt->end_micros = WallMicros();
      change.attempt->end_step = current.progress.step;
      change.attempt->failure.category = FailureCategory::kPreempted;
      change.attempt->failure.reason = "SERVER_RESTARTED";
    }
    current.state_reason = "SERVER_RESTARTED";
    current.state_message = absl::StrCat("the server was restarted; ", how);
    if (current.state == JobState::kCancelling) {
      current.state = JobState::kCancelled;
      current.end_micros = WallMicros();
    } else if (current.state == JobState::kSuspending) {
      current.state = JobState::kSuspended;
    } else {
      current.state = JobState::kRecovering;
      current.ready_micros = 0;
    }
    return absl::OkStatus();
  };
  LogInfo("job {}: {} after a restart of the server", job.id, how);
  return store_.UpdateJob(job.id, settle).status();
}

}  // namespace blockswap::server
