// SPDX-License-Identifier: Apache-2.0
// How attempts end: clocks, the kill ladder, and what becomes of the job.
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/random_text.h"
#include "server/base/wall_clock.h"
#include "server/jobs/progress_figures.h"
#include "server/jobs/transitions.h"
#include "server/scheduler/scheduler.h"
#include "server/supervisor/exit_report.h"

namespace blockswap::server {
namespace {

const char* ExitCause(const Outcome& outcome, const ProcessExit& exit) {
  if (outcome.kind != OutcomeKind::kFailed) return "ok";
  switch (outcome.failure.category) {
    case FailureCategory::kOutOfMemoryDevice:
      return "oom_device";
    case FailureCategory::kOutOfMemoryHost:
      return "oom_host";
    case FailureCategory::kDeviceFault:
      return "device_fault";
    case FailureCategory::kStalled:
      return "stalled";
    default:
      return exit.signal != 0 ? "signal" : "error";
  }
}

double RandomFraction() {
  uint32_t bits = 0;
  const std::string bytes = RandomBytes(sizeof(bits));
  std::memcpy(&bits, bytes.data(), sizeof(bits));
  return static_cast<double>(bits) / 4294967296.0;
}

// Beside what the worker says it needed: who reads it sees which of the two was wrong.
std::string EstimateOf(const RunningAttempt& attempt) {
  return absl::StrCat("the plan estimated ", base::FormatByteSize(attempt.device_bytes),
                      " on the device, the server granted ",
                      base::FormatByteSize(attempt.record.granted_bytes),
                      attempt.adopted || attempt.stepped ? "" : ", no step was made");
}

// Of a device that is kept from jobs for as long as its trial takes.
constexpr char kBeingTried[] = "is being tried out after a fault";

const char* AttemptResult(const Outcome& outcome) {
  switch (outcome.kind) {
    case OutcomeKind::kSucceeded:
      return "succeeded";
    case OutcomeKind::kCancelled:
      return "cancelled";
    case OutcomeKind::kSuspended:
      return "suspended";
    case OutcomeKind::kFailed:
      break;
  }
  return "failed";
}

void EndJob(JobRecord& job, JobState state, std::string reason, std::string message) {
  job.state = state;
  job.state_reason = std::move(reason);
  job.state_message = std::move(message);
  job.end_micros = WallMicros();
  job.stop_mode = StopMode::kNone;
}

}  // namespace

void Scheduler::CheckAttempts(SteadyTime now) {
  for (auto& [id, attempt] : running_) {
    if (!attempt->ladder.begun()) {
      const auto failure = CheckClocks(*attempt, now, options_.clocks);
      if (failure.has_value()) {
        LogWarning("job {}: {}", id, failure->message);
        attempt->imposed = *failure;
        for (const LadderAction action : attempt->ladder.BeginStalled(now)) {
          Perform(*attempt, action);
        }
      }
    }
    while (const auto action = attempt->ladder.Due(now)) Perform(*attempt, *action);
  }
}

void Scheduler::Perform(RunningAttempt& attempt, LadderAction action) {
  switch (action) {
    case LadderAction::kSendStop: {
      WorkerCommand command;
      command.kind = CommandKind::kStop;
      command.stop_mode = attempt.ladder.mode();
      command.grace_seconds = std::chrono::duration<double>(attempt.ladder.grace()).count();
      attempt.handle->Send(command);
      return;
    }
    case LadderAction::kDumpStacks:
      attempt.handle->Signal(SIGQUIT);
      return;
    case LadderAction::kTerminate:
      attempt.handle->Signal(SIGTERM);
      return;
    case LadderAction::kKill:
      LogWarning("job {}: worker {} ignored SIGTERM, killing it", attempt.key.job_id,
                 attempt.handle->pid());
      attempt.handle->Signal(SIGKILL);
      return;
    case LadderAction::kGiveUp:
      GiveUp(attempt);
      return;
  }
}

void Scheduler::GiveUp(RunningAttempt& attempt) {
  LogError("job {}: worker {} cannot be killed; device {} takes no more jobs", attempt.key.job_id,
           attempt.handle->pid(), attempt.device);
  const auto drained = devices_.Drain(attempt.device, "a worker that cannot be killed holds it");
  if (!drained.ok()) LogError("{}", drained.ToString());
  const auto fail = [&attempt](JobRecord& job, JobChange& change) {
    job.failure.category = FailureCategory::kWorkerCrash;
    job.failure.reason = "WORKER_UNKILLABLE";
    job.failure.message =
        absl::StrCat("the worker process ", attempt.record.pid, " cannot be killed");
    job.failure.step = attempt.last_step;
    EndJob(job, JobState::kFailed, job.failure.reason, job.failure.message);
    change.attempt = attempt.record;
    change.attempt->end_micros = job.end_micros;
    change.attempt->failure = job.failure;
    return absl::OkStatus();
  };
  const auto failed = store_.UpdateJob(attempt.key.job_id, fail);
  if (!failed.ok()) LogError("job {}: {}", attempt.key.job_id, failed.status().ToString());
  metrics_.JobFinished("failed", FailureCategory::kWorkerCrash);
}

absl::Status Scheduler::HandleExit(const ExitMessage& message) {
  RunningAttempt* attempt = Find(message.key);
  if (attempt == nullptr) return absl::OkStatus();
  BLOCKSWAP_RETURN_IF_ERROR(SettleExit(*attempt, message.exit));
  running_.erase(message.key.job_id);
  Wake();
  return absl::OkStatus();
}

Outcome Scheduler::OutcomeOf(RunningAttempt& attempt, const ProcessExit& exit) const {
  // Of an adopted worker the kernel tells us nothing: its own words have to do.
  if (!exit.known && !attempt.report.has_value()) {
    attempt.report = ReadExitReport(attempt.output_directory, attempt.key.attempt);
  }
  ExitContext context;
  context.exit = exit;
  context.report = attempt.report;
  context.imposed = attempt.imposed;
  context.was_ready = attempt.ready;
  context.last_step = attempt.last_step;
  // Nobody can say what ended a worker that no server has heard since the restart.
  if (attempt.adopted && !attempt.attached && !attempt.report.has_value() &&
      attempt.imposed.category == FailureCategory::kNone) {
    context.imposed.category = FailureCategory::kPreempted;
    context.imposed.reason = "SERVER_RESTARTED";
    context.imposed.message = "the worker did not outlive the restart of the server";
  }
  Outcome outcome = ClassifyExit(context);
  // A worker that hung and then heard SIGTERM after all stops as if it had been asked to.
  if (outcome.kind == OutcomeKind::kCancelled && attempt.ladder.mode() == StopMode::kNone &&
      attempt.imposed.category != FailureCategory::kNone) {
    outcome = {OutcomeKind::kFailed, attempt.imposed};
  }
  return outcome;
}

absl::Status Scheduler::SettleExit(RunningAttempt& attempt, const ProcessExit& exit) {
  Outcome outcome = OutcomeOf(attempt, exit);
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord before, store_.GetJob(attempt.key.job_id));
  if (outcome.failure.category == FailureCategory::kOutOfMemoryDevice) {
    absl::StrAppend(&outcome.failure.message, "; ", EstimateOf(attempt));
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(auto attempts, store_.ListAttempts(before.uid));
  std::erase_if(attempts, [&](const auto& past) { return past.number == attempt.key.attempt; });
  RetryDecision retry;
  if (outcome.kind == OutcomeKind::kFailed) {
    RetryHistory history;
    history.ended = attempt.record;
    history.ended.end_micros = WallMicros();
    history.ended.end_step = attempt.last_step;
    BLOCKSWAP_ASSIGN_OR_RETURN(history.checkpoints, store_.ListCheckpoints(before.uid));
    history.jitter = RandomFraction();
    retry = DecideRetry(before, outcome.failure, attempts, WallMicros(), options_.retry, history);
  }
  JobRecord job = before;
  if (!IsTerminal(before.state)) {
    const auto settle = [&](JobRecord& current, JobChange& change) {
      SettleJob(attempt, outcome, retry, current, change);
      return absl::OkStatus();
    };
    BLOCKSWAP_ASSIGN_OR_RETURN(job, store_.UpdateJob(attempt.key.job_id, settle));
  }
  metrics_.WorkerExited(ExitCause(outcome, exit));
  ReportEnd(attempt, outcome, retry, job);
  return absl::OkStatus();
}

void Scheduler::SettleJob(const RunningAttempt& attempt, const Outcome& outcome,
                          const RetryDecision& retry, JobRecord& job, JobChange& change) const {
  change.attempt = attempt.record;
  change.attempt->end_micros = WallMicros();
  change.attempt->end_step = attempt.last_step;
  change.attempt->failure = outcome.failure;
  job.progress.phase.clear();
  job.progress.eta_seconds = 0;
  if (attempt.report.has_value()) {
    job.progress.step = std::max(job.progress.step, attempt.report->step);
  }
  switch (outcome.kind) {
    case OutcomeKind::kSucceeded:
      Complete(job.progress);
      EndJob(job, JobState::kSucceeded, "SUCCEEDED", "finished");
      if (attempt.report.has_value() && !attempt.report->adapter_file.empty()) {
        job.state_message = absl::StrCat("wrote ", attempt.report->adapter_file);
      }
      return;
    case OutcomeKind::kCancelled:
    case OutcomeKind::kSuspended:
      break;
    case OutcomeKind::kFailed:
      SettleFailure(attempt, outcome.failure, retry, job);
      change.attempt->counts_as_retry = retry.counts && job.state == JobState::kRecovering &&
                                        job.state_reason != "SERVER_STOPPED";
      return;
  }
  // It stopped because it was asked to; by whom, the job's state says.
  if (job.state == JobState::kCancelling) {
    EndJob(job, JobState::kCancelled, job.state_reason, job.state_message);
  } else if (job.state == JobState::kSuspending) {
    job.state = JobState::kSuspended;
    job.state_message = absl::StrCat("suspended after step ", attempt.last_step);
  } else if (suspending_all_) {
    job.state = JobState::kRecovering;
    job.state_reason = "SERVER_STOPPED";
    job.state_message = absl::StrCat("the server stopped after step ", attempt.last_step,
                                     "; the job goes on when it is back");
  } else {
    Failure failure;
    failure.category = FailureCategory::kPreempted;
    failure.reason = "WORKER_TERMINATED";
    failure.message = "someone else stopped the worker";
    failure.step = attempt.last_step;
    RetryDecision again;
    again.retries = true;
    again.backoff = options_.retry.backoff;
    again.explanation = "going on from the last checkpoint";
    SettleFailure(attempt, failure, again, job);
    change.attempt->failure = failure;
  }
}

void Scheduler::SettleFailure(const RunningAttempt& attempt, const Failure& failure,
                              const RetryDecision& retry, JobRecord& job) const {
  if (job.state == JobState::kCancelling) {
    EndJob(job, JobState::kCancelled, job.state_reason, job.state_message);
    return;
  }
  if (suspending_all_ && failure.category != FailureCategory::kInvalidInput &&
      failure.category != FailureCategory::kNumerics) {
    job.state = JobState::kRecovering;
    job.state_reason = "SERVER_STOPPED";
    job.state_message =
        "the server stopped; the job goes on from its last checkpoint when it is back";
    return;
  }
  if (job.state == JobState::kSuspending && retry.retries) {
    job.state = JobState::kSuspended;
    job.state_message = absl::StrCat("suspended at the last checkpoint: ", failure.message);
    return;
  }
  job.failure = failure;
  if (!retry.retries) {
    EndJob(job, JobState::kFailed, failure.reason,
           absl::StrCat(failure.message, retry.explanation.empty() ? "" : "; ", retry.explanation));
    return;
  }
  job.state = JobState::kRecovering;
  job.state_reason = failure.reason;
  job.state_message = absl::StrCat(failure.message, "; ", retry.explanation);
  job.ready_micros =
      WallMicros() + std::chrono::duration_cast<std::chrono::microseconds>(retry.backoff).count();
  if (retry.swap_override >= 0) {
    job.swap_override = retry.swap_override;
    job.out_of_memory_retried = true;
  }
  LogWarning("job {}: attempt {}: {}", job.id, attempt.key.attempt, job.state_message);
}

void Scheduler::ReportEnd(const RunningAttempt& attempt, const Outcome& outcome,
                          const RetryDecision& retry, const JobRecord& job) {
  const auto lasted = std::chrono::duration<double>(SteadyNow() - attempt.started).count();
  metrics_.AttemptEnded(AttemptResult(outcome), lasted);
  metrics_.slots().WorkerEnded(attempt.slot);
  info_removal_[attempt.slot] = SteadyNow() + options_.info_series_linger;
  if (retry.retries && job.state == JobState::kRecovering)
    metrics_.JobRestarted(outcome.failure.category);
  if (job.state == JobState::kSucceeded) metrics_.JobFinished("succeeded", FailureCategory::kNone);
  if (job.state == JobState::kCancelled) metrics_.JobFinished("cancelled", FailureCategory::kNone);
  if (job.state == JobState::kFailed && job.state_reason != "WORKER_UNKILLABLE") {
    metrics_.JobFinished("failed", job.failure.category);
  }
  LogInfo("job {}: attempt {} ended after {:.1f} s: {}", job.id, attempt.key.attempt, lasted,
          std::string(StateName(job.state)));
  if (outcome.kind == OutcomeKind::kFailed &&
      outcome.failure.category == FailureCategory::kDeviceFault) {
    ProbeDevice(attempt);
  }
  devices_.Release(attempt.device, attempt.key.job_id);
}

void Scheduler::ProbeDevice(const RunningAttempt& attempt) {
  if (options_.probe_device == nullptr) return;
  for (const DeviceState& device : devices_.List()) {
    // One that is out of service already stays it, whatever a trial says.
    if (device.name != attempt.device || device.health != DeviceHealth::kHealthy) continue;
    const absl::Status drained = devices_.Drain(device.name, kBeingTried);
    if (!drained.ok()) return;
    options_.probe_device(
        device, [this, name = device.name, job = attempt.key.job_id](const absl::Status& verdict) {
          Post(ProbeMessage{name, job, verdict});
        });
  }
}

void Scheduler::HandleProbe(const ProbeMessage& message) {
  for (const DeviceState& device : devices_.List()) {
    // An operator has drained it meanwhile: not ours to give back.
    if (device.name == message.device && device.health_reason != kBeingTried) return;
  }
  std::string reason = "DEVICE_KEPT", text = "the device answers a fresh process and stays in use";
  absl::Status changed;
  if (message.verdict.ok()) {
    changed = devices_.Undrain(message.device);
  } else {
    reason = "DEVICE_DRAINED";
    text =
        absl::StrCat("does not answer a fresh process after a fault: ", message.verdict.message());
    LogError("device {}: {}", message.device, text);
    changed = devices_.Drain(message.device, text);
  }
  if (!changed.ok()) LogError("{}", std::string(changed.message()));
  const auto told = store_.UpdateJob(message.job_id, [&](JobRecord&, JobChange& change) {
    change.events.push_back(MakeEvent(EventType::kWarning, reason, text));
    return absl::OkStatus();
  });
  // The device's state is what counts; the job may be deleted by now.
  told.status().IgnoreError();
  Wake();
}

}  // namespace blockswap::server
