// SPDX-License-Identifier: Apache-2.0
// What workers report, and what follows from it for their jobs.
#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/wall_clock.h"
#include "server/jobs/progress_figures.h"
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

// What the worker says when it goes on without the checkpoint it wanted to write
// (worker/train/saver).
bool IsFailedSave(const WarningUpdate& warning) {
  return warning.reason == "SAVE_FAILED" || warning.reason == "DISK_FULL";
}

double SecondsBetween(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

absl::Status Scheduler::HandleUpdate(const UpdateMessage& message) {
  RunningAttempt* attempt = Find(message.key);
  if (attempt == nullptr) return absl::OkStatus();  // of an attempt that has ended
  attempt->handling_sequence = message.sequence;
  const absl::Status applied = Apply(*attempt, message.update);
  attempt->handling_sequence = 0;
  BLOCKSWAP_RETURN_IF_ERROR(applied);
  if (message.sequence != 0) attempt->handle->Acknowledge(message.sequence);
  return absl::OkStatus();
}

absl::Status Scheduler::Apply(RunningAttempt& attempt, const WorkerUpdate& update) {
  const SteadyTime now = SteadyNow();
  // Any word is a sign of life.
  if (!std::holds_alternative<DetachedUpdate>(update)) {
    attempt.last_heartbeat = now;
    metrics_.slots().Heartbeat(attempt.slot, UnixSeconds());
  }
  if (std::holds_alternative<AttachedUpdate>(update)) {
    if (!attempt.attached) attempt.attached_at = now;
    if (!attempt.attached && !attempt.adopted) {
      metrics_.JobStartup("spawn", SecondsBetween(attempt.started, now));
    }
    attempt.attached = true;
  } else if (const auto* detached = std::get_if<DetachedUpdate>(&update)) {
    if (!detached->fault.empty() && attempt.imposed.category == FailureCategory::kNone) {
      // A worker of the release before, which this server cannot take over, has done nothing wrong.
      const bool is_leftover = attempt.adopted && !attempt.attached;
      attempt.imposed.category =
          is_leftover ? FailureCategory::kPreempted : FailureCategory::kWorkerCrash;
      attempt.imposed.reason = is_leftover ? "SERVER_RESTARTED" : "WORKER_PROTOCOL";
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
    metrics_.slots().Memory(attempt.slot, *memory);
    if (memory->pinning_fell_back) attempt.link_watch.ExpectStaged();
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
    job.progress.total_steps = ready.total_steps;
    AdvanceTo(ready.start_step, job.progress);
    // Of the attempt before: this one has not made a step yet.
    job.progress.eta_seconds = 0;
    job.progress.last_progress_micros = WallMicros();
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
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, UpdateAttempt(attempt, apply));
  attempt.ready = true;
  attempt.last_step = ready.start_step;
  attempt.total_steps = ready.total_steps;
  attempt.last_progress = attempt.ready_at = SteadyNow();
  metrics_.slots().Ready(attempt.slot, ready.start_step, ready.total_steps);
  if (!attempt.adopted) {
    metrics_.JobStartup("load_weights", SecondsBetween(attempt.attached_at, attempt.ready_at));
  }
  return absl::OkStatus();
}

absl::Status Scheduler::ApplySteps(RunningAttempt& attempt, const StepsUpdate& steps) {
  if (steps.steps.empty()) return absl::OkStatus();
  const WorkerStep& last = steps.steps.back();
  double seconds = 0;
  std::deque<double> durations = attempt.recent_step_seconds;
  for (const WorkerStep& step : steps.steps) {
    seconds += step.seconds;
    durations.push_back(step.seconds);
  }
  const auto apply = [&](JobRecord& job, JobChange& change) {
    Progress& progress = job.progress;
    AdvanceTo(last.step, progress);
    progress.epoch = last.epoch;
    progress.loss = last.loss;
    progress.learning_rate = last.learning_rate;
    progress.grad_norm = last.grad_norm;
    progress.seconds_per_step = seconds / static_cast<double>(steps.steps.size());
    progress.eta_seconds = RemainingSeconds(last.step, progress.total_steps, durations);
    progress.last_progress_micros = WallMicros();
    progress.device_bytes = last.device_bytes_peak;
    const SwapCounters known = attempt.last_swap.value_or(steps.steps.front().swap);
    const double waited = std::max(0.0, StallSeconds(last.swap) - StallSeconds(known));
    progress.stall_ratio = seconds > 0 ? std::min(1.0, waited / seconds) : 0;
    const SwapCounters* before = &known;
    for (const WorkerStep& step : steps.steps) {
      change.points.push_back(PointOf(step, *before));
      before = &step.swap;
    }
    return absl::OkStatus();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, UpdateAttempt(attempt, apply));
  attempt.last_swap = last.swap;
  const SteadyTime now = SteadyNow();
  if (!attempt.stepped) {
    attempt.stepped = true;
    // Of an adopted worker an earlier server saw the start.
    if (!attempt.adopted) {
      metrics_.JobStartup("first_step", SecondsBetween(attempt.ready_at, now));
    }
  }
  for (const WorkerStep& step : steps.steps) {
    attempt.NoteStep(step, now);
    metrics_.slots().Step(attempt.slot, step, UnixSeconds());
    WatchLink(attempt, step.swap);
  }
  hub_.PublishProgress(ProgressEvent(job));
  return absl::OkStatus();
}

void Scheduler::WatchLink(RunningAttempt& attempt, const SwapCounters& swap) {
  if (attempt.link_warned) return;
  const std::vector<DeviceState> devices = devices_.List();
  for (const DeviceState& device : devices) {
    // Copies of the host device share its cores with compute: their rate says nothing of a bus.
    if (device.name != attempt.device || device.kind != DeviceKind::kCuda) continue;
    // Jobs that share a card share its bus: then the rate of one says nothing either.
    if (device.holders.size() > 1) {
      attempt.link_watch.Restart();
      return;
    }
    const std::string warning = attempt.link_watch.Note(swap, device.link);
    if (warning.empty()) return;
    devices_.NoteSlowCopies(device.name, warning);
    WarnOfLinks(devices_.List());
  }
}

absl::Status Scheduler::ApplyCheckpoint(RunningAttempt& attempt, const CheckpointUpdate& update) {
  attempt.record.checkpoint_seconds = std::max(attempt.record.checkpoint_seconds, update.seconds);
  const auto apply = [&update](JobRecord&, JobChange& change) {
    change.checkpoint = update.checkpoint;
    change.checkpoint->create_micros = WallMicros();
    change.events.push_back(MakeEvent(EventType::kCheckpointCommitted, "CHECKPOINT_COMMITTED",
                                      absl::StrCat("step ", update.checkpoint.step)));
    return absl::OkStatus();
  };
  BLOCKSWAP_RETURN_IF_ERROR(UpdateAttempt(attempt, apply).status());
  attempt.ladder.AllowForCheckpoint(update.seconds);
  attempt.last_progress = SteadyNow();
  metrics_.slots().CheckpointWritten(attempt.slot, update.checkpoint.bytes, update.seconds,
                                     UnixSeconds());
  return absl::OkStatus();
}

absl::Status Scheduler::ApplyReplan(RunningAttempt& attempt, const ReplanUpdate& replan) {
  const auto apply = [&replan](JobRecord& job, JobChange& change) {
    if (!replan.plan_json.empty()) job.plan_json = replan.plan_json;
    if (!replan.plan_text.empty()) job.plan_text = replan.plan_text;
    change.events.push_back(MakeEvent(EventType::kPlanReady, "REPLANNED",
                                      absl::StrCat(replan.reason, " after step ", replan.step)));
    return absl::OkStatus();
  };
  BLOCKSWAP_RETURN_IF_ERROR(UpdateAttempt(attempt, apply).status());
  metrics_.slots().Replanned(attempt.slot, replan.reason);
  return absl::OkStatus();
}

absl::Status Scheduler::ApplyWarning(RunningAttempt& attempt, const WarningUpdate& warning) {
  const auto apply = [&warning](JobRecord& job, JobChange& change) {
    if (job.warnings.size() < kMaxWarnings) job.warnings.push_back(warning.message);
    change.events.push_back(MakeEvent(EventType::kWarning, warning.reason, warning.message));
    return absl::OkStatus();
  };
  BLOCKSWAP_RETURN_IF_ERROR(UpdateAttempt(attempt, apply).status());
  if (IsFailedSave(warning)) metrics_.slots().CheckpointFailed();
  return absl::OkStatus();
}

absl::Status Scheduler::ApplyPhase(RunningAttempt& attempt, const PhaseUpdate& phase) {
  const auto apply = [&phase](JobRecord& job, JobChange&) {
    job.progress.phase = phase.phase;
    job.progress.phase_bytes_done = phase.bytes_done;
    job.progress.phase_bytes_total = phase.bytes_total;
    return absl::OkStatus();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, UpdateAttempt(attempt, apply));
  attempt.phase = phase.phase;
  metrics_.slots().Phase(attempt.slot, phase.phase);
  attempt.last_progress = SteadyNow();
  hub_.PublishProgress(ProgressEvent(job));
  return absl::OkStatus();
}

absl::Status Scheduler::AddEvent(RunningAttempt& attempt, EventRecord event) {
  return UpdateAttempt(attempt,
                       [&event](JobRecord&, JobChange& change) {
                         change.events.push_back(event);
                         return absl::OkStatus();
                       })
      .status();
}

absl::StatusOr<JobRecord> Scheduler::UpdateAttempt(RunningAttempt& attempt,
                                                   JobStore::Mutation mutate) {
  AttemptRecord record = attempt.record;
  record.last_sequence = std::max(record.last_sequence, attempt.handling_sequence);
  auto updated = store_.UpdateJob(attempt.key.job_id, [&](JobRecord& job, JobChange& change) {
    change.attempt = record;
    return mutate(job, change);
  });
  if (updated.ok()) attempt.record = std::move(record);
  return updated;
}

}  // namespace blockswap::server
