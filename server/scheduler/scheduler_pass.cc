// SPDX-License-Identifier: Apache-2.0
// Passes over the queue: what the machine has, who starts, who is too late, why the others wait.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/host_facts.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/wall_clock.h"
#include "server/device/disk_space.h"
#include "server/jobs/transitions.h"
#include "server/scheduler/scheduler.h"

namespace blockswap::server {
namespace {

// Waiting reasons written in one pass: with thousands of queued jobs each write costs a sync to
// disk. What a job is told when it is asked for is on the board at once.
constexpr int kMaxReasonsPerPass = 50;
// Checkpoints are written beside the old one: some room beyond their size.
constexpr double kDiskReserve = 1.2;

int64_t MicrosOf(SteadyTime time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

int64_t WithReserve(int64_t checkpoint_bytes) {
  return static_cast<int64_t>(static_cast<double>(checkpoint_bytes) * kDiskReserve);
}

Failure TooLate(int64_t step) {
  Failure failure;
  failure.category = FailureCategory::kTimeout;
  failure.reason = "DEADLINE_EXCEEDED";
  failure.message = "the job was not over by its deadline";
  failure.step = step;
  return failure;
}

// By the plan until steps were measured.
int64_t ExpectedEnd(const RunningAttempt& attempt, SteadyTime now) {
  const double step_seconds = attempt.MedianStepSeconds();
  if (step_seconds > 0 && attempt.total_steps > 0) {
    const int64_t left = std::max<int64_t>(0, attempt.total_steps - attempt.last_step);
    return MicrosOf(now + ToMicros(step_seconds * static_cast<double>(left)));
  }
  if (!(attempt.expected_seconds > 0)) return kNever;
  return MicrosOf(attempt.started + ToMicros(attempt.expected_seconds));
}

}  // namespace

void Scheduler::NoteJob(const JobRecord& job) {
  QueueChange change = QueueChangeOf(job);
  base::MutexLock lock(mutex_);
  queue_changes_.push_back(std::move(change));
}

absl::Status Scheduler::LoadQueue() {
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto waiting, store_.WaitingQueue());
  std::vector<QueueChange> changes;
  changes.reserve(waiting.size());
  for (const WaitingJob& job : waiting) {
    changes.push_back(QueueChangeOf(job, options_.outputs_root));
  }
  queue_.Apply(std::move(changes), WallMicros(), MicrosOf(SteadyNow()));
  return absl::OkStatus();
}

void Scheduler::TakeQueueChanges() {
  std::vector<QueueChange> changes;
  {
    base::MutexLock lock(mutex_);
    changes.swap(queue_changes_);
  }
  if (!changes.empty()) queue_.Apply(std::move(changes), WallMicros(), MicrosOf(SteadyNow()));
}

int64_t Scheduler::FreeDisk(const QueuedJob& job) const {
  const DiskSpace disk = ReadDiskSpace(job.output_directory);
  int64_t free = disk.free_bytes;
  // Each of these will write a checkpoint beside its last one, too.
  for (const auto& [id, attempt] : running_) {
    if (attempt->disk_volume == disk.volume) free -= WithReserve(attempt->disk_bytes);
  }
  return static_cast<int64_t>(static_cast<double>(std::max<int64_t>(0, free)) / kDiskReserve);
}

QueueState Scheduler::ReadMachine(SteadyTime now) const {
  QueueState state;
  state.devices = devices_.List();
  state.steady_micros = MicrosOf(now);
  const base::HostFacts facts = base::ReadHostFacts(options_.host_files);
  state.host.memory_bytes = facts.available_bytes + launcher_.shared_memory().unused_bytes;
  state.host.lockable_bytes = facts.lock_limit_bytes;
  for (const auto& [id, attempt] : running_) {
    state.running.push_back({id, attempt->device, attempt->device_bytes, attempt->host_bytes,
                             ExpectedEnd(*attempt, now)});
    // What it loads is not missing from the free memory before it is loaded.
    if (!attempt->ready) state.host.memory_bytes -= attempt->host_bytes;
  }
  for (const SharedBase& base : launcher_.shared_bases()) {
    // Nobody may have filled it yet, or ever: a worker gets one for each way it may settle.
    if (std::find(base.ready.begin(), base.ready.end(), true) == base.ready.end()) continue;
    state.loaded_bases.insert(base.key);
    if (base.in_use) state.host.shared_bases[base.key] = base.ready;
  }
  state.device_base = device_base_;
  const std::optional<QueuePause> pause = store_.queue_pause();
  state.paused = pause.has_value();
  if (pause.has_value()) state.pause_reason = pause->reason;
  state.host.disk_bytes = [this](const QueuedJob& job) { return FreeDisk(job); };
  return state;
}

void Scheduler::Pass() {
  const SteadyTime begin = SteadyNow();
  next_ready_ = SteadyTime::max();
  if (!store_.writable()) return;
  TakeQueueChanges();
  const std::vector<QueuedJob>& jobs = queue_.jobs();
  if (jobs.empty()) {
    board_.Publish({}, {});
    return;
  }
  const QueueState state = ReadMachine(begin);
  std::vector<QueueDecision> decisions = DecideQueue(jobs, state, options_.queue);
  int reasons_left = kMaxReasonsPerPass;
  for (const QueueDecision& decision : decisions) {
    const QueuedJob& job = jobs[decision.job];
    if (decision.verdict == Verdict::kExpired) {
      ExpireWaiting(job);
    } else if (decision.verdict == Verdict::kStart) {
      const auto device = std::find_if(
          state.devices.begin(), state.devices.end(),
          [&decision](const auto& candidate) { return candidate.name == decision.device; });
      const absl::Status started = StartAttempt(job, *device, state.host);
      if (!started.ok()) FailToStart(job, decision.device, started);
    } else {
      if (decision.reason.kind == WaitKind::kBackoff) {
        const auto left = std::chrono::microseconds(job.ready_micros - state.steady_micros);
        next_ready_ = std::min(next_ready_, begin + left);
      }
      // Numbers change all the time; why a device is out of service does not.
      const bool is_news = job.stored_reason != ReasonName(decision.reason) ||
                           (decision.reason.kind == WaitKind::kUnhealthy &&
                            job.stored_message != MessageOf(decision.reason));
      if (is_news && reasons_left > 0) {
        --reasons_left;
        NoteWaiting(job, decision.reason);
      }
    }
  }
  board_.Publish(jobs, std::move(decisions));
  metrics_.SchedulerPass(std::chrono::duration<double>(SteadyNow() - begin).count());
}

void Scheduler::NoteWaiting(const QueuedJob& job, const WaitReason& reason) {
  const auto noted = store_.UpdateJob(job.id, [&reason](JobRecord& current, JobChange&) {
    if (!IsWaiting(current.state)) return absl::CancelledError("no longer waiting");
    current.state_reason = ReasonName(reason);
    current.state_message = MessageOf(reason);
    return absl::OkStatus();
  });
  // A cancelled job or a full disk: the next pass sees it.
  noted.status().IgnoreError();
}

void Scheduler::ExpireWaiting(const QueuedJob& job) {
  const auto expired = store_.UpdateJob(job.id, [](JobRecord& current, JobChange&) {
    if (!IsWaiting(current.state)) return absl::CancelledError("no longer waiting");
    current.failure = TooLate(current.progress.step);
    current.state = JobState::kFailed;
    current.state_reason = current.failure.reason;
    current.state_message = absl::StrCat(current.failure.message, "; it was waiting (",
                                         current.attempt, " attempts before)");
    current.end_micros = std::max(current.create_micros, WallMicros());
    return absl::OkStatus();
  });
  if (expired.ok()) metrics_.JobFinished("failed", FailureCategory::kTimeout);
}

void Scheduler::StopTheLate(SteadyTime now) {
  for (auto& [id, attempt] : running_) {
    if (attempt->ladder.begun() || queue_.DeadlineOf(id) > MicrosOf(now)) continue;
    LogWarning("job {}: its deadline is over, stopping it after step {}", id, attempt->last_step);
    attempt->imposed = TooLate(attempt->last_step);
    // It may write a checkpoint: somebody may want to go on from there.
    for (const LadderAction action : attempt->ladder.Begin(StopMode::kGraceful, now)) {
      Perform(*attempt, action);
    }
  }
}

void Scheduler::LeaveFaultyDevices(const std::vector<DeviceState>& devices, SteadyTime now) {
  for (const DeviceState& device : devices) {
    if (!device.is_faulty) continue;
    for (const DeviceHold& hold : device.holders) {
      const auto found = running_.find(hold.job);
      if (found == running_.end() || found->second->ladder.begun()) continue;
      RunningAttempt& attempt = *found->second;
      LogWarning("job {}: leaving device {}: {}", hold.job, device.name, device.health_reason);
      attempt.imposed.category = FailureCategory::kDeviceFault;
      attempt.imposed.reason = "DEVICE_XID";
      attempt.imposed.message = absl::StrCat("device ", device.name, ": ", device.health_reason);
      for (const LadderAction action : attempt.ladder.Begin(StopMode::kNone, now)) {
        Perform(attempt, action);
      }
    }
  }
}

std::optional<int64_t> Scheduler::ShowPlace(JobRecord* job) const {
  if (!IsWaiting(job->state)) return std::nullopt;
  const std::optional<QueuePlace> place = board_.Find(job->id);
  if (!place.has_value()) return std::nullopt;
  job->state_reason = ReasonName(place->reason);
  job->state_message = MessageOf(place->reason);
  return place->position;
}

}  // namespace blockswap::server
