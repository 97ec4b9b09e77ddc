// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/scheduler.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "offload/base/host_facts.h"
#include "offload/base/status_macros.h"
#include "server/base/file_lock.h"
#include "server/base/log.h"
#include "server/base/reason.h"
#include "server/base/thread_name.h"
#include "server/jobs/transitions.h"
#include "server/scheduler/job_file_rewrite.h"
#include "server/supervisor/process_identity.h"

namespace blockswap::server {
namespace {

// Waiting reasons written in one pass: with thousands of queued jobs each write costs a sync to
// disk.
constexpr int kMaxReasonsPerPass = 50;
// Checkpoints are written beside the old one: some room beyond their size.
constexpr double kDiskReserve = 1.2;

bool IsReadOnly(const absl::Status& status) { return ReasonOf(status) == "STORE_READ_ONLY"; }

}  // namespace

Scheduler::Scheduler(JobStore& store, EventHub& hub, DeviceTable& devices, WorkerLauncher& launcher,
                     ServerMetrics& metrics, SchedulerOptions options)
    : store_(store),
      hub_(hub),
      devices_(devices),
      launcher_(launcher),
      metrics_(metrics),
      options_(std::move(options)) {}

Scheduler::~Scheduler() { Shutdown(std::chrono::milliseconds(0)); }

absl::Status Scheduler::Start() {
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto interrupted, store_.JobsWithWorkers());
  for (const JobRecord& job : interrupted) BLOCKSWAP_RETURN_IF_ERROR(RecoverJob(job));
  last_round_micros_.store(WallMicros(), std::memory_order_relaxed);
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

absl::Status Scheduler::RecoverJob(const JobRecord& job) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto attempts, store_.ListAttempts(job.uid));
  std::string how = "its worker was gone";
  if (!attempts.empty()) {
    const AttemptRecord& last = attempts.back();
    const OrphanFate fate =
        KillOrphan(last.pid, last.process_start_time, last.boot_id, options_.orphan_patience);
    if (fate == OrphanFate::kKilled) how = "its worker was ended";
    if (fate == OrphanFate::kStillThere) {
      return absl::FailedPreconditionError(
          absl::StrCat("worker process ", last.pid, " of job ", job.id,
                       " cannot be ended; end it before the server "
                       "starts, two workers may not write one job"));
    }
  }
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

void Scheduler::Post(Message message) {
  base::MutexLock lock(mutex_);
  messages_.push_back(std::move(message));
  wake_.Signal();
}

void Scheduler::Wake() {
  base::MutexLock lock(mutex_);
  look_again_ = true;
  wake_.Signal();
}

bool Scheduler::IsAlive() const {
  constexpr int64_t kMaxSilenceMicros = 30'000'000;
  return WallMicros() - last_round_micros_.load(std::memory_order_relaxed) < kMaxSilenceMicros;
}

SteadyTime Scheduler::NextDeadline(SteadyTime now) const {
  SteadyTime next = std::min({next_tick_, next_ready_, now + options_.tick});
  for (const auto& [id, attempt] : running_) {
    const auto deadline = attempt->ladder.deadline();
    if (deadline.has_value()) next = std::min(next, *deadline);
  }
  return next;
}

void Scheduler::Run() {
  NameThisThread("scheduler");
  while (true) {
    std::deque<Message> messages;
    bool looks = false, stops = false;
    {
      base::MutexLock lock(mutex_);
      const SteadyTime deadline = NextDeadline(SteadyNow());
      while (messages_.empty() && !look_again_ && SteadyNow() < deadline) {
        if (shutting_down_ && (!suspending_all_ || running_.empty())) break;
        wake_.WaitUntil(mutex_, deadline);
      }
      messages.swap(messages_);
      looks = std::exchange(look_again_, false);
      stops = shutting_down_;
    }
    last_round_micros_.store(WallMicros(), std::memory_order_relaxed);
    HandleMessages(std::move(messages));
    const SteadyTime now = SteadyNow();
    if (stops && !suspending_all_) {
      suspending_all_ = true;
      for (auto& [id, attempt] : running_) {
        for (const LadderAction action : attempt->ladder.Begin(StopMode::kSuspend, now)) {
          Perform(*attempt, action);
        }
      }
    }
    CheckAttempts(now);
    if (now >= next_tick_) {
      Tick(now);
      looks = true;
    }
    if ((looks || now >= next_ready_) && !stops) Pass();
    if (stops && running_.empty()) return;
    if (stops) {
      base::MutexLock lock(mutex_);
      if (now < shutdown_deadline_) continue;
      for (auto& [id, attempt] : running_) attempt->handle->Signal(SIGKILL);
      // The next round collects the exits; what the kernel will not let go of is left to the next
      // server.
      if (now > shutdown_deadline_ + std::chrono::seconds(5)) return;
    }
  }
}

void Scheduler::Shutdown(std::chrono::milliseconds grace) {
  {
    base::MutexLock lock(mutex_);
    shutting_down_ = true;
    shutdown_deadline_ = SteadyNow() + grace;
    wake_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

void Scheduler::HurryShutdown() {
  base::MutexLock lock(mutex_);
  shutdown_deadline_ = SteadyNow();
  wake_.Signal();
}

void Scheduler::HandleMessages(std::deque<Message> messages) {
  for (Message& message : messages) {
    // Order within an attempt must hold: behind a deferred message everything waits, except what
    // needs no store.
    const auto* update = std::get_if<UpdateMessage>(&message);
    const bool needs_store = update == nullptr ? !std::holds_alternative<CommandMessage>(message)
                                               : update->sequence != 0;
    if (needs_store && !deferred_.empty()) {
      deferred_.push_back(std::move(message));
      continue;
    }
    const absl::Status handled = Handle(message);
    if (IsReadOnly(handled)) {
      deferred_.push_back(std::move(message));
    } else if (!handled.ok()) {
      LogError("scheduler: {}", handled.ToString());
    }
  }
}

absl::Status Scheduler::Handle(const Message& message) {
  if (const auto* update = std::get_if<UpdateMessage>(&message)) return HandleUpdate(*update);
  if (const auto* exit = std::get_if<ExitMessage>(&message)) return HandleExit(*exit);
  HandleCommand(std::get<CommandMessage>(message));
  return absl::OkStatus();
}

void Scheduler::Tick(SteadyTime now) {
  next_tick_ = now + options_.tick;
  if (!store_.writable() && store_.ProbeWritable()) {
    std::deque<Message> again;
    again.swap(deferred_);
    HandleMessages(std::move(again));
  }
  devices_.Refresh();
  const std::vector<DeviceState> devices = devices_.List();
  metrics_.SetDevices(devices);
  WarnOfLinks(devices);
  metrics_.SetHost(base::ReadHostFacts());
  metrics_.SetSharedMemory(launcher_.shared_memory());
  metrics_.SetStore(store_.writable(), store_.last_sequence());
  metrics_.SetStorage("state", ReadDiskSpace(options_.state_directory));
  metrics_.SetStorage("outputs", ReadDiskSpace(options_.outputs_root));
  const auto counts = store_.CountJobs();
  if (counts.ok()) metrics_.SetJobs(*counts);
  std::map<std::string, int> workers;
  for (const auto& [id, attempt] : running_) {
    ++workers[attempt->ladder.begun() ? "stopping" : attempt->ready ? "running" : "starting"];
  }
  metrics_.SetWorkers(workers);
  for (auto entry = info_removal_.begin(); entry != info_removal_.end();) {
    if (now < entry->second) {
      ++entry;
      continue;
    }
    metrics_.slots().RemoveInfo(entry->first);
    entry = info_removal_.erase(entry);
  }
}

void Scheduler::WarnOfLinks(const std::vector<DeviceState>& devices) {
  for (const DeviceState& device : devices) {
    const auto found = running_.find(device.holder);
    if (device.link_warning.empty() || found == running_.end()) continue;
    RunningAttempt& attempt = *found->second;
    // With a worker that copies: at rest the bus may be slow on purpose.
    if (attempt.link_warned || !attempt.stepped) continue;
    attempt.link_warned = true;
    LogWarning("device {}: {}", device.name, device.link_warning);
    AddEvent(attempt, MakeEvent(EventType::kWarning, "LINK_BELOW_PROFILE", device.link_warning))
        .IgnoreError();  // a full disk: the metric still says it
  }
}

void Scheduler::Pass() {
  const SteadyTime begin = SteadyNow();
  next_ready_ = SteadyTime::max();
  if (!store_.writable()) return;
  const auto waiting = store_.WaitingJobs();
  if (!waiting.ok()) {
    LogError("scheduler: {}", waiting.status().ToString());
    return;
  }
  std::set<std::string> claimed;
  int reasons_left = kMaxReasonsPerPass;
  for (const JobRecord& job : *waiting) {
    const std::vector<DeviceState> devices = devices_.List();
    HostRoom room;
    room.memory_bytes =
        base::ReadHostFacts().available_bytes + launcher_.shared_memory().unused_bytes;
    room.disk_bytes = static_cast<int64_t>(
        static_cast<double>(ReadDiskSpace(options_.outputs_root).free_bytes) / kDiskReserve);
    room.now_micros = WallMicros();
    const AdmissionDecision decision = DecideAdmission(job, devices, claimed, room);
    if (decision.device.has_value()) {
      const auto device = std::find_if(
          devices.begin(), devices.end(),
          [&decision](const auto& candidate) { return candidate.name == *decision.device; });
      const absl::Status started = StartAttempt(job, *device);
      if (!started.ok()) FailToStart(job, *decision.device, started);
      continue;
    }
    if (job.ready_micros > room.now_micros) {
      next_ready_ = std::min(next_ready_,
                             begin + std::chrono::microseconds(job.ready_micros - room.now_micros));
    }
    claimed.insert(decision.wanted.begin(), decision.wanted.end());
    if (job.state_reason != decision.reason && reasons_left > 0) {
      --reasons_left;
      NoteWaiting(job, decision);
    }
    const bool all_taken =
        std::none_of(devices.begin(), devices.end(), [&claimed](const auto& device) {
          return device.is_free() && claimed.count(device.name) == 0;
        });
    if (all_taken && reasons_left == 0) break;
  }
  metrics_.SchedulerPass(std::chrono::duration<double>(SteadyNow() - begin).count());
}

void Scheduler::NoteWaiting(const JobRecord& job, const AdmissionDecision& decision) {
  const auto noted = store_.UpdateJob(job.id, [&decision](JobRecord& current, JobChange&) {
    if (!IsWaiting(current.state)) return absl::CancelledError("no longer waiting");
    current.state_reason = decision.reason;
    current.state_message = decision.message;
    return absl::OkStatus();
  });
  // A cancelled job or a full disk: the next pass sees it.
  noted.status().IgnoreError();
}

absl::Status Scheduler::StartAttempt(const JobRecord& waiting, const DeviceState& device) {
  BLOCKSWAP_RETURN_IF_ERROR(devices_.Claim(device.name, waiting.id));
  const auto begin = [&device](JobRecord& job, JobChange& change) {
    if (!IsWaiting(job.state)) return absl::CancelledError("no longer waiting");
    ++job.attempt;
    job.state = JobState::kStarting;
    job.state_reason = "STARTING";
    job.state_message = absl::StrCat("attempt ", job.attempt, " starts on ", device.name);
    job.device = device.name;
    job.stop_mode = StopMode::kNone;
    job.ready_micros = 0;
    job.failure = Failure{};  // the attempts keep theirs
    change.attempt.emplace();
    change.attempt->number = job.attempt;
    change.attempt->device = device.name;
    change.attempt->start_micros = WallMicros();
    change.attempt->boot_id = BootId();
    return absl::OkStatus();
  };
  auto started = store_.UpdateJob(waiting.id, begin);
  if (!started.ok()) {
    devices_.Release(device.name);
    // Cancelled between the listing and now: nothing to do.
    return absl::IsCancelled(started.status()) || IsReadOnly(started.status()) ? absl::OkStatus()
                                                                               : started.status();
  }
  JobRecord job = *std::move(started);
  if (job.attempt == 1) {
    metrics_.JobQueuedFor(static_cast<double>(WallMicros() - job.create_micros) * 1e-6);
  }
  LogInfo("job {}: attempt {} on {}", job.id, job.attempt, device.name);

  auto attempt = std::make_unique<RunningAttempt>(AttemptKey{job.id, job.attempt}, options_.ladder);
  attempt->job_uid = job.uid;
  attempt->granted_bytes = device.free_bytes;
  attempt->device = device.name;
  attempt->started = attempt->last_heartbeat = attempt->last_progress = SteadyNow();
  attempt->record.number = job.attempt;
  attempt->record.device = device.name;
  attempt->record.start_micros = job.update_micros;
  attempt->record.boot_id = BootId();
  BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(job.output_directory, 0700));
  LaunchRequest request;
  request.key = attempt->key;
  request.job_uid = job.uid;
  request.job_json = JobForWorker(job.spec_json, device.free_bytes, job.swap_override);
  request.output_directory = job.output_directory;
  request.device = device.kind == DeviceKind::kHost ? "host" : "cuda:0";
  request.visible_gpu = device.uuid;
  request.host_bytes =
      job.needs.host_bytes + (device.kind == DeviceKind::kHost ? job.needs.device_bytes : 0);
  BLOCKSWAP_ASSIGN_OR_RETURN(attempt->handle, launcher_.Launch(request, *this));
  attempt->record.pid = attempt->handle->pid();
  attempt->record.process_start_time = attempt->handle->process_start_time();
  RunningAttempt& placed = *(running_[job.id] = std::move(attempt));
  // The worker waits for its token: when its identity cannot be stored it is ended, and its exit
  // settles the job.
  auto recorded = store_.UpdateJob(job.id, [&placed](JobRecord&, JobChange& change) {
    change.attempt = placed.record;
    return absl::OkStatus();
  });
  if (recorded.ok())
    recorded = placed.handle->Release().ok() ? recorded : absl::InternalError("token pipe");
  if (!recorded.ok()) {
    placed.imposed.category = FailureCategory::kServerInternal;
    placed.imposed.reason = "WORKER_NOT_RELEASED";
    placed.imposed.message = std::string(recorded.status().message());
    placed.handle->Signal(SIGKILL);
  }
  info_removal_.erase(device.name);
  metrics_.slots().WorkerStarted(
      {device.name, job.id, device.name, device.uuid, job.needs.architecture, job.attempt});
  metrics_.JobStartup("spawn", std::chrono::duration<double>(SteadyNow() - placed.started).count());
  return absl::OkStatus();
}

void Scheduler::FailToStart(const JobRecord& job, const std::string& device,
                            const absl::Status& why) {
  LogError("job {}: cannot start: {}", job.id, why.ToString());
  devices_.Release(device);
  const auto failed = store_.UpdateJob(job.id, [&why](JobRecord& current, JobChange& change) {
    if (IsTerminal(current.state)) return absl::OkStatus();
    current.failure.category = FailureCategory::kServerInternal;
    current.failure.reason = "WORKER_NOT_STARTED";
    current.failure.message = std::string(why.message());
    current.state =
        current.state == JobState::kCancelling ? JobState::kCancelled : JobState::kFailed;
    current.state_reason = current.failure.reason;
    current.state_message = current.failure.message;
    current.end_micros = WallMicros();
    change.attempt.emplace();
    change.attempt->number = current.attempt;
    change.attempt->end_micros = current.end_micros;
    change.attempt->failure = current.failure;
    return absl::OkStatus();
  });
  if (failed.ok()) {
    metrics_.JobFinished("failed", FailureCategory::kServerInternal);
  } else {
    LogError("job {}: {}", job.id, failed.status().ToString());
  }
}

RunningAttempt* Scheduler::Find(const AttemptKey& key) {
  const auto found = running_.find(key.job_id);
  return found != running_.end() && found->second->key == key ? found->second.get() : nullptr;
}

}  // namespace blockswap::server
