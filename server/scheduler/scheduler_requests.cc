// SPDX-License-Identifier: Apache-2.0
// What clients ask of jobs.
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/base/wall_clock.h"
#include "server/jobs/transitions.h"
#include "server/scheduler/job_file_rewrite.h"
#include "server/scheduler/scheduler.h"

namespace blockswap::server {
namespace {

absl::Status WrongState(const JobRecord& job, const char* verb, const char* allowed) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat("job ", job.id, " is ", StateName(job.state),
                                                 " and cannot be ", verb, "; ", allowed)),
      "INVALID_STATE", {{"state", std::string(StateName(job.state))}, {"job", job.id}});
}

}  // namespace

absl::StatusOr<JobRecord> Scheduler::CancelJob(const std::string& id, StopMode mode,
                                               const std::string& reason) {
  BLOCKSWAP_ASSIGN_OR_RETURN(JobRecord before, store_.GetJob(id));
  if (IsTerminal(before.state)) return before;
  bool stops_worker = false, ended = false;
  const auto cancel = [&](JobRecord& job, JobChange&) {
    stops_worker = ended = false;
    if (IsTerminal(job.state)) return absl::OkStatus();
    if (HasWorker(job.state)) {
      stops_worker = true;
      job.state = JobState::kCancelling;
      if (mode == StopMode::kNow || job.stop_mode != StopMode::kNow) job.stop_mode = mode;
    } else {
      ended = true;
      job.state = JobState::kCancelled;
      job.end_micros = WallMicros();
    }
    job.state_reason = mode == StopMode::kNow ? "CANCELLED_NOW" : "CANCELLED_BY_CLIENT";
    job.state_message = reason.empty() ? "cancelled on request" : reason;
    return absl::OkStatus();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(JobRecord job, store_.UpdateJob(id, cancel));
  if (stops_worker) {
    WorkerCommand command;
    command.kind = CommandKind::kStop;
    command.stop_mode = mode;
    Post(CommandMessage{id, command});
  }
  if (ended) metrics_.JobFinished("cancelled", FailureCategory::kNone);
  Wake();
  return job;
}

absl::StatusOr<JobRecord> Scheduler::SuspendJob(const std::string& id) {
  bool stops_worker = false;
  const auto suspend = [&stops_worker](JobRecord& job, JobChange&) {
    stops_worker = job.state == JobState::kStarting || job.state == JobState::kRunning;
    if (stops_worker) {
      job.state = JobState::kSuspending;
      job.stop_mode = StopMode::kSuspend;
    } else if (IsWaiting(job.state)) {
      job.state = JobState::kSuspended;
    } else if (job.state != JobState::kSuspending && job.state != JobState::kSuspended) {
      return WrongState(job, "suspended", "only a waiting or running job can");
    }
    job.state_reason = "SUSPENDED_BY_CLIENT";
    job.state_message = "suspended on request";
    return absl::OkStatus();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(JobRecord job, store_.UpdateJob(id, suspend));
  if (stops_worker) {
    WorkerCommand command;
    command.kind = CommandKind::kStop;
    command.stop_mode = StopMode::kSuspend;
    Post(CommandMessage{id, command});
  }
  Wake();
  return job;
}

absl::StatusOr<JobRecord> Scheduler::ResumeJob(const std::string& id) {
  const auto resume = [](JobRecord& job, JobChange&) {
    if (IsWaiting(job.state)) return absl::OkStatus();
    if (job.state != JobState::kSuspended)
      return WrongState(job, "resumed", "only a suspended job can");
    job.state = JobState::kQueued;
    job.state_reason = "RESUMED_BY_CLIENT";
    job.state_message = "resumed on request";
    job.stop_mode = StopMode::kNone;
    return absl::OkStatus();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(JobRecord job, store_.UpdateJob(id, resume));
  Wake();
  return job;
}

absl::Status Scheduler::AskWorker(const std::string& id, CommandKind kind) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, store_.GetJob(id));
  if (job.state != JobState::kRunning) {
    return WrongState(job, kind == CommandKind::kSample ? "sampled" : "checkpointed",
                      "only a running job can");
  }
  WorkerCommand command;
  command.kind = kind;
  Post(CommandMessage{id, command});
  return absl::OkStatus();
}

void Scheduler::UpdateWorkerMemory(const JobRecord& job) {
  WorkerCommand command;
  command.kind = CommandKind::kUpdateMemory;
  command.memory_json = job.spec_json;
  Post(CommandMessage{job.id, command});
}

void Scheduler::OnUpdate(const AttemptKey& key, int64_t sequence, WorkerUpdate update) {
  Post(UpdateMessage{key, sequence, std::move(update)});
}

void Scheduler::OnExit(const AttemptKey& key, const ProcessExit& exit) {
  Post(ExitMessage{key, exit});
}

void Scheduler::HandleCommand(const CommandMessage& message) {
  const auto found = running_.find(message.job_id);
  if (found == running_.end()) return;
  RunningAttempt& attempt = *found->second;
  if (message.command.kind == CommandKind::kUpdateMemory) {
    WorkerCommand command = message.command;
    // An "auto" budget is what was granted at the start, as in the job file the worker began with.
    command.memory_json =
        MemoryForWorker(command.memory_json, attempt.record.granted_bytes, /*swap_override=*/-1);
    attempt.handle->Send(command);
    return;
  }
  if (message.command.kind != CommandKind::kStop) {
    attempt.handle->Send(message.command);
    return;
  }
  for (const LadderAction action : attempt.ladder.Begin(message.command.stop_mode, SteadyNow())) {
    Perform(attempt, action);
  }
}

}  // namespace blockswap::server
