// SPDX-License-Identifier: Apache-2.0
// What workers report, and what follows from it for their jobs.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/wall_clock.h"
#include "server/jobs/transitions.h"
#include "server/scheduler/scheduler.h"

namespace blockswap::server {
namespace {

constexpr size_t kMaxWarnings = 50;  // of a job; the log has them all

double UnixSeconds() { return static_cast<double>(WallMicros()) * 1e-6; }

EventRecord ProgressEvent(const JobRecord& job) {
  EventRecord event = MakeEvent(EventType::kProgress, "", "");
  event.job_id = job.id;
  event.time_micros = job.update_micros;
  event.state = job.state;
  event.attempt = job.attempt;
  event.progress = job.progress;
  return event;
}

double StallSeconds(const SwapCounters& swap) {
  return swap.forward_stall_seconds + swap.backward_stall_seconds;
}

// The worker's counters run over the whole attempt; a point holds its own step's share.
MetricPoint PointOf(const WorkerStep& step, const SwapCounters& before) {
  MetricPoint point;
  point.step = step.step;
  point.loss = step.loss;
  point.learning_rate = step.learning_rate;
  point.grad_norm = step.grad_norm;
  point.seconds = step.seconds;
  point.h2d_bytes = std::max<int64_t>(0, step.swap.h2d_bytes - before.h2d_bytes);
  point.stall_seconds = std::max(0.0, StallSeconds(step.swap) - StallSeconds(before));
  point.device_bytes_peak = step.device_bytes_peak;
  return point;
}

}  // namespace

absl::Status Scheduler::HandleUpdate(const UpdateMessage& message) {
  RunningAttempt* attempt = Find(message.key);
  if (attempt == nullptr) return absl::OkStatus();  // of an attempt that has ended
  BLOCKSWAP_RETURN_IF_ERROR(Apply(*attempt, message.update));
  if (message.sequence != 0) attempt->handle->Acknowledge(message.sequence);
  return absl::OkStatus();
}

absl::Status Scheduler::Apply(RunningAttempt& attempt, const WorkerUpdate& update) {
  const SteadyTime now = SteadyNow();
  // Any word is a sign of life.
  if (!std::holds_alternative<DetachedUpdate>(update)) {
    attempt.last_heartbeat = now;
    metrics_.slots().Heartbeat(attempt.device, UnixSeconds());
  }
  if (std::holds_alternative<AttachedUpdate>(update)) {
    attempt.attached = true;
  } else if (const auto* detached = std::get_if<DetachedUpdate>(&update)) {
    if (!detached->fault.empty() && attempt.imposed.category == FailureCategory::kNone) {
      attempt.imposed.category = FailureCategory::kWorkerCrash;
      attempt.imposed.reason = "WORKER_PROTOCOL";
      attempt.imposed.message = detached->fault;
      for (const LadderAction action : attempt.ladder.Begin(StopMode::kNone, now))
        Perform(attempt, action);
    }
  } else if (const auto* ready = std::get_if<ReadyUpdate>(&update)) {
    return ApplyReady(attempt, *ready);
  } else if (const auto* steps = std::get_if<StepsUpdate>(&update)) {
    return ApplySteps(attempt, *steps);
  } else if (const auto* checkpoint = std::get_if<CheckpointUpdate>(&update)) {
    return ApplyCheckpoint(attempt, *checkpoint);
  } else if (const auto* sample = std::get_if<SampleUpdate>(&update)) {
    return AddEvent(attempt, MakeEvent(EventType::kSampleReady, "SAMPLE_READY",
                                       absl::StrCat("step ", sample->step, ": ", sample->file)));
  } else if (const auto* memory = std::get_if<MemoryUpdate>(&update)) {
    metrics_.slots().Memory(attempt.device, *memory);
  } else if (const auto* replan = std::get_if<ReplanUpdate>(&update)) {
    return ApplyReplan(attempt, *replan);
  } else if (const auto* warning = std::get_if<WarningUpdate>(&update)) {
    return ApplyWarning(attempt, *warning);
  } else if (const auto* phase = std::get_if<PhaseUpdate>(&update)) {
    return ApplyPhase(attempt, *phase);
  } else if (const auto* exiting = std::get_if<ExitingUpdate>(&update)) {
    attempt.report = *exiting;
    // On its way out it makes no more steps.
    attempt.phase = "finishing";
  }
  return absl::OkStatus();
}

absl::Status Scheduler::ApplyReady(RunningAttempt& attempt, const ReadyUpdate& ready) {
  attempt.record.start_step = ready.start_step;
  const auto apply = [&](JobRecord& job, JobChange& change) {
    if (job.state == JobState::kStarting) {
      job.state = JobState::kRunning;
      job.state_reason = "TRAINING";
      job.state_message = ready.resumed_from.empty()
                              ? absl::StrCat("attempt ", job.attempt, " trains on ", attempt.device)
                              : absl::StrCat("attempt ", job.attempt, " goes on after step ",
                                             ready.start_step, " on ", attempt.device);
    }
    if (job.start_micros == 0) job.start_micros = WallMicros();
    if (!ready.plan_json.empty()) job.plan_json = ready.plan_json;
    if (!ready.plan_text.empty()) job.plan_text = ready.plan_text;
    job.progress.step = ready.start_step;
    job.progress.total_steps = ready.total_steps;
    job.progress.last_progress_micros = WallMicros();
    change.attempt = attempt.record;
    change.drop_points_after = ready.start_step;
    // Waiting state reasons changed first, so that watchers see RUNNING before the plan.
    change.events.push_back(
        MakeEvent(EventType::kStateChanged, job.state_reason, job.state_message));
    change.events.push_back(MakeEvent(EventType::kPlanReady, "PLAN_READY", ""));
    for (const std::string& skipped : ready.skipped_checkpoints) {
      change.events.push_back(MakeEvent(EventType::kWarning, "CHECKPOINT_CORRUPT", skipped));
      if (job.warnings.size() < kMaxWarnings) job.warnings.push_back(skipped);
    }
    return absl::OkStatus();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, store_.UpdateJob(attempt.key.job_id, apply));
  attempt.ready = true;
  attempt.last_step = ready.start_step;
  attempt.total_steps = ready.total_steps;
  attempt.last_progress = SteadyNow();
  metrics_.slots().Ready(attempt.device, ready.start_step, ready.total_steps);
  metrics_.JobStartup("ready",
                      std::chrono::duration<double>(SteadyNow() - attempt.started).count());
  return absl::OkStatus();
}

absl::Status Scheduler::ApplySteps(RunningAttempt& attempt, const StepsUpdate& steps) {
  if (steps.steps.empty()) return absl::OkStatus();
  const WorkerStep& last = steps.steps.back();
  double seconds = 0;
  for (const WorkerStep& step : steps.steps) seconds += step.seconds;
  const auto apply = [&](JobRecord& job, JobChange& change) {
    Progress& progress = job.progress;
    progress.step = last.step;
    progress.epoch = last.epoch;
    progress.loss = last.loss;
    progress.learning_rate = last.learning_rate;
    progress.grad_norm = last.grad_norm;
    progress.seconds_per_step = seconds / static_cast<double>(steps.steps.size());
    progress.eta_seconds = progress.seconds_per_step * static_cast<double>(std::max<int64_t>(
                                                           0, progress.total_steps - last.step));
    progress.last_progress_micros = WallMicros();
    progress.device_bytes = last.device_bytes_peak;
    const double waited = std::max(0.0, StallSeconds(last.swap) - StallSeconds(attempt.last_swap));
    progress.stall_ratio = seconds > 0 ? std::min(1.0, waited / seconds) : 0;
    const SwapCounters* before = &attempt.last_swap;
    for (const WorkerStep& step : steps.steps) {
      change.points.push_back(PointOf(step, *before));
      before = &step.swap;
    }
    return absl::OkStatus();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, store_.UpdateJob(attempt.key.job_id, apply));
  attempt.last_swap = last.swap;
  const SteadyTime now = SteadyNow();
  if (!attempt.stepped) {
    attempt.stepped = true;
    metrics_.JobStartup("first_step", std::chrono::duration<double>(now - attempt.started).count());
  }
  for (const WorkerStep& step : steps.steps) {
    attempt.NoteStep(step, now);
    metrics_.slots().Step(attempt.device, step, UnixSeconds());
  }
  hub_.PublishProgress(ProgressEvent(job));
  return absl::OkStatus();
}

absl::Status Scheduler::ApplyCheckpoint(RunningAttempt& attempt, const CheckpointUpdate& update) {
  const auto apply = [&update](JobRecord&, JobChange& change) {
    change.checkpoint = update.checkpoint;
    change.checkpoint->create_micros = WallMicros();
    change.events.push_back(MakeEvent(EventType::kCheckpointCommitted, "CHECKPOINT_COMMITTED",
                                      absl::StrCat("step ", update.checkpoint.step)));
    return absl::OkStatus();
  };
  BLOCKSWAP_RETURN_IF_ERROR(store_.UpdateJob(attempt.key.job_id, apply).status());
  attempt.last_progress = SteadyNow();
  metrics_.slots().CheckpointWritten(attempt.device, update.checkpoint.bytes, update.seconds,
                                     UnixSeconds());
  return absl::OkStatus();
}

absl::Status Scheduler::ApplyReplan(RunningAttempt& attempt, const ReplanUpdate& replan) {
  const auto apply = [&replan](JobRecord& job, JobChange& change) {
    if (!replan.plan_json.empty()) job.plan_json = replan.plan_json;
    if (!replan.plan_text.empty()) job.plan_text = replan.plan_text;
    change.events.push_back(
        MakeEvent(EventType::kPlanReady, "REPLANNED",
                  absl::StrCat(replan.reason, " after step ", replan.step)));
    return absl::OkStatus();
  };
  BLOCKSWAP_RETURN_IF_ERROR(store_.UpdateJob(attempt.key.job_id, apply).status());
  metrics_.slots().Replanned(attempt.device, replan.reason);
  return absl::OkStatus();
}

absl::Status Scheduler::ApplyWarning(RunningAttempt& attempt, const WarningUpdate& warning) {
  const auto apply = [&warning](JobRecord& job, JobChange& change) {
    if (job.warnings.size() < kMaxWarnings) job.warnings.push_back(warning.message);
    change.events.push_back(MakeEvent(EventType::kWarning, warning.reason, warning.message));
    return absl::OkStatus();
  };
  BLOCKSWAP_RETURN_IF_ERROR(store_.UpdateJob(attempt.key.job_id, apply).status());
  if (warning.reason == "CHECKPOINT_FAILED") metrics_.slots().CheckpointFailed();
  return absl::OkStatus();
}

absl::Status Scheduler::ApplyPhase(RunningAttempt& attempt, const PhaseUpdate& phase) {
  const auto apply = [&phase](JobRecord& job, JobChange&) {
    job.progress.phase = phase.phase;
    return absl::OkStatus();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, store_.UpdateJob(attempt.key.job_id, apply));
  attempt.phase = phase.phase;
  attempt.last_progress = SteadyNow();
  hub_.PublishProgress(ProgressEvent(job));
  return absl::OkStatus();
}

absl::Status Scheduler::AddEvent(const RunningAttempt& attempt, EventRecord event) {
  return store_
      .UpdateJob(attempt.key.job_id,
                 [&event](JobRecord&, JobChange& change) {
                   change.events.push_back(event);
                   return absl::OkStatus();
                 })
      .status();
}

}  // namespace blockswap::server
