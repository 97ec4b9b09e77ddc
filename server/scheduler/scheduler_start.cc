// SPDX-License-Identifier: Apache-2.0
// From a decision to a running worker, or to a job that failed because none could be started.
#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/reason.h"
#include "server/device/disk_space.h"
#include "server/jobs/transitions.h"
#include "server/scheduler/admission.h"
#include "server/scheduler/job_file_rewrite.h"
#include "server/scheduler/output_directory.h"
#include "server/scheduler/retry_policy.h"
#include "server/scheduler/scheduler.h"
#include "server/supervisor/process_identity.h"

namespace blockswap::server {
namespace {

bool IsReadOnly(const absl::Status& status) { return ReasonOf(status) == "STORE_READ_ONLY"; }

// The job's next attempt on the device, as it is stored before the worker is there. Cancelled: the
// job does not wait any more.
absl::Status BeginAttempt(const std::string& device, JobRecord& job, JobChange& change) {
  if (!IsWaiting(job.state)) return absl::CancelledError("no longer waiting");
  ++job.attempt;
  job.state = JobState::kStarting;
  job.state_reason = "STARTING";
  job.state_message = absl::StrCat("attempt ", job.attempt, " starts on ", device);
  job.device = device;
  job.stop_mode = StopMode::kNone;
  job.ready_micros = 0;
  job.failure = Failure{};  // the attempts keep theirs
  change.attempt.emplace();
  change.attempt->number = job.attempt;
  change.attempt->device = device;
  change.attempt->start_micros = WallMicros();
  change.attempt->boot_id = BootId();
  return absl::OkStatus();
}

Failure FailureOf(const absl::Status& why) {
  const bool is_output = ReasonOf(why) == kOutputUnavailable;
  Failure failure;
  failure.category = is_output ? FailureCategory::kStorage : FailureCategory::kServerInternal;
  failure.reason = is_output ? kOutputUnavailable : "WORKER_NOT_STARTED";
  failure.message = std::string(why.message());
  failure.retryable = is_output && absl::IsUnavailable(why);
  return failure;
}

// An attempt that was counted and got no worker.
struct LostStart {
  AttemptRecord attempt;
  RetryDecision retry;
};

absl::StatusOr<LostStart> FindLostStart(JobStore& store, const std::string& id,
                                        const Failure& failure, const RetryOptions& options) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, store.GetJob(id));
  BLOCKSWAP_ASSIGN_OR_RETURN(auto attempts, store.ListAttempts(job.uid));
  LostStart lost;
  lost.attempt.number = job.attempt;
  for (const AttemptRecord& attempt : attempts) {
    if (attempt.number == job.attempt) lost.attempt = attempt;
  }
  std::erase_if(attempts, [&job](const auto& past) { return past.number == job.attempt; });
  if (failure.retryable) {
    lost.retry = DecideRetry(job, failure, attempts, WallMicros(), options);
  }
  return lost;
}

void GoOnLater(JobRecord& job, std::string reason, std::string message,
               std::chrono::milliseconds backoff) {
  job.state = JobState::kRecovering;
  job.state_reason = std::move(reason);
  job.state_message = std::move(message);
  job.ready_micros =
      WallMicros() + std::chrono::duration_cast<std::chrono::microseconds>(backoff).count();
}

}  // namespace

std::string Scheduler::FreeSlot(const std::string& device) const {
  for (int place = 0;; ++place) {
    std::string slot = place == 0 ? device : absl::StrCat(device, ".", place);
    const bool is_taken = std::any_of(running_.begin(), running_.end(), [&slot](const auto& entry) {
      return entry.second->slot == slot;
    });
    if (!is_taken) return slot;
  }
}

void Scheduler::NoteNeeds(const JobRecord& job, RunningAttempt& attempt) const {
  attempt.slot = FreeSlot(attempt.device);
  attempt.base_key = job.needs.base_key;
  attempt.device_bytes = job.needs.device_bytes;
  attempt.host_bytes =
      job.needs.host_bytes + (attempt.device == "host" ? job.needs.device_bytes : 0);
  attempt.disk_bytes = job.needs.disk_bytes;
  attempt.disk_volume = ReadDiskSpace(job.output_directory).volume;
}

std::unique_ptr<RunningAttempt> Scheduler::MakeAttempt(const JobRecord& job,
                                                       const QueuedJob& waiting,
                                                       const DeviceState& device,
                                                       const HostRoom& host) const {
  auto attempt = std::make_unique<RunningAttempt>(AttemptKey{job.id, job.attempt}, options_.ladder);
  attempt->job_uid = job.uid;
  attempt->device = device.name;
  attempt->output_directory = job.output_directory;
  NoteNeeds(job, *attempt);
  attempt->host_bytes = HostNeed(waiting, device.kind, host);
  attempt->expected_seconds = waiting.expected_seconds;
  // Beside others it gets what it was planned with; alone, all there is.
  attempt->record.granted_bytes =
      options_.queue.max_jobs_per_device > 1 ? waiting.needs.device_bytes : device.room_bytes();
  attempt->started = attempt->last_heartbeat = attempt->last_progress = SteadyNow();
  attempt->record.number = job.attempt;
  attempt->record.device = device.name;
  attempt->record.start_micros = job.update_micros;
  attempt->record.boot_id = BootId();
  return attempt;
}

absl::Status Scheduler::StartAttempt(const QueuedJob& waiting, const DeviceState& device,
                                     const HostRoom& host) {
  BLOCKSWAP_RETURN_IF_ERROR(devices_.Claim(device.name, waiting.id, waiting.needs.device_bytes,
                                           options_.queue.max_jobs_per_device));
  auto started = store_.UpdateJob(waiting.id, [&device](JobRecord& job, JobChange& change) {
    return BeginAttempt(device.name, job, change);
  });
  if (!started.ok()) {
    devices_.Release(device.name, waiting.id);
    // Cancelled between the listing and now: nothing to do.
    return absl::IsCancelled(started.status()) || IsReadOnly(started.status()) ? absl::OkStatus()
                                                                               : started.status();
  }
  JobRecord job = *std::move(started);
  if (job.attempt == 1) {
    // Never negative, whatever was done to the wall clock meanwhile.
    metrics_.JobQueuedFor(
        static_cast<double>(std::max<int64_t>(0, WallMicros() - job.create_micros)) * 1e-6);
  }
  LogInfo("job {}: attempt {} on {}", job.id, job.attempt, device.name);

  BLOCKSWAP_ASSIGN_OR_RETURN(const auto checkpoints, store_.ListCheckpoints(job.uid));
  BLOCKSWAP_RETURN_IF_ERROR(PrepareOutputDirectory(job.output_directory, !checkpoints.empty()));
  auto attempt = MakeAttempt(job, waiting, device, host);
  LaunchRequest request;
  request.key = attempt->key;
  request.job_uid = job.uid;
  request.job_json = JobForWorker(job.spec_json, attempt->record.granted_bytes, job.swap_override);
  request.output_directory = job.output_directory;
  request.device = device.kind == DeviceKind::kHost ? "host" : "cuda:0";
  request.visible_gpu = device.uuid;
  request.host_bytes = attempt->host_bytes;
  for (const std::string& key : {job.needs.base_key, job.needs.other_base_key}) {
    if (!key.empty()) request.base_keys.push_back(key);
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(attempt->handle, launcher_.Launch(request, *this));
  attempt->record.pid = attempt->handle->pid();
  attempt->record.process_start_time = attempt->handle->process_start_time();
  attempt->record.socket = attempt->handle->socket_path();
  attempt->record.token_hash = attempt->handle->token_hash();
  RunningAttempt& placed = *(running_[job.id] = std::move(attempt));
  // The worker waits for its token: when its identity cannot be stored it is ended, and its exit
  // settles the job.
  auto recorded = UpdateAttempt(placed, [](JobRecord&, JobChange&) { return absl::OkStatus(); });
  if (recorded.ok())
    recorded = placed.handle->Release().ok() ? recorded : absl::InternalError("token pipe");
  if (!recorded.ok()) {
    placed.imposed.category = FailureCategory::kServerInternal;
    placed.imposed.reason = "WORKER_NOT_RELEASED";
    placed.imposed.message = std::string(recorded.status().message());
    placed.handle->Signal(SIGKILL);
  }
  device_base_[device.name] = placed.base_key;
  info_removal_.erase(placed.slot);
  metrics_.slots().WorkerStarted({placed.slot, job.id, device.name, device.uuid,
                                  job.needs.architecture, job.attempt, placed.record.pid});
  return absl::OkStatus();
}

void Scheduler::FailToStart(const QueuedJob& job, const std::string& device,
                            const absl::Status& why) {
  LogError("job {}: cannot start: {}", job.id, why.ToString());
  devices_.Release(device, job.id);
  metrics_.WorkerNotStarted(absl::IsResourceExhausted(why) ? "resources" : "other");
  const Failure failure = FailureOf(why);
  const absl::StatusOr<LostStart> lost = FindLostStart(store_, job.id, failure, options_.retry);
  if (!lost.ok()) return LogError("job {}: {}", job.id, lost.status().ToString());
  const auto settled = store_.UpdateJob(job.id, [&](JobRecord& current, JobChange& change) {
    if (IsTerminal(current.state)) return absl::OkStatus();
    change.attempt = lost->attempt;
    change.attempt->end_micros = WallMicros();
    const bool starts = current.state == JobState::kStarting;
    // No descriptors, processes or memory left: what runs goes on, and this one waits for its turn.
    if (absl::IsResourceExhausted(why) && starts) {
      GoOnLater(current, "SERVER_RESOURCES",
                absl::StrCat("the server is short of resources: ", why.message()),
                options_.retry.backoff);
      return absl::OkStatus();
    }
    current.failure = change.attempt->failure = failure;
    if (lost->retry.retries && starts) {
      change.attempt->counts_as_retry = lost->retry.counts;
      GoOnLater(current, failure.reason,
                absl::StrCat(failure.message, "; ", lost->retry.explanation), lost->retry.backoff);
      return absl::OkStatus();
    }
    current.state =
        current.state == JobState::kCancelling ? JobState::kCancelled : JobState::kFailed;
    current.state_reason = failure.reason;
    current.state_message = lost->retry.explanation.empty()
                                ? failure.message
                                : absl::StrCat(failure.message, "; ", lost->retry.explanation);
    current.end_micros = change.attempt->end_micros;
    return absl::OkStatus();
  });
  if (!settled.ok()) {
    LogError("job {}: {}", job.id, settled.status().ToString());
  } else if (settled->state == JobState::kFailed) {
    metrics_.JobFinished("failed", failure.category);
  } else if (settled->state == JobState::kRecovering && lost->retry.retries) {
    metrics_.JobRestarted(failure.category);
  }
}

}  // namespace blockswap::server
