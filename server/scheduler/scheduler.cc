// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/scheduler.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/host_facts.h"
#include "offload/base/status_macros.h"
#include "server/base/file_lock.h"
#include "server/base/log.h"
#include "server/base/reason.h"
#include "server/base/thread_name.h"
#include "server/device/disk_space.h"
#include "server/jobs/transitions.h"
#include "server/supervisor/process_identity.h"

namespace blockswap::server {
namespace {

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

Scheduler::~Scheduler() {
  Shutdown(std::chrono::milliseconds(0));
  store_.SetJobListener(nullptr);
}

void Scheduler::Start() {
  last_round_micros_.store(WallMicros(), std::memory_order_relaxed);
  thread_ = std::thread([this] { Run(); });
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
        ExtendShutdown(now + attempt->ladder.grace());
        for (const LadderAction action : attempt->ladder.Begin(StopMode::kSuspend, now)) {
          Perform(*attempt, action);
        }
      }
    }
    TakeQueueChanges();
    StopTheLate(now);
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

void Scheduler::ExtendShutdown(SteadyTime deadline) {
  base::MutexLock lock(mutex_);
  // Unless there was no patience to begin with.
  if (shutdown_deadline_ > SteadyNow()) shutdown_deadline_ = std::max(shutdown_deadline_, deadline);
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
    const bool needs_store =
        update == nullptr ? std::holds_alternative<ExitMessage>(message) : update->sequence != 0;
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
  if (const auto* probe = std::get_if<ProbeMessage>(&message)) {
    HandleProbe(*probe);
    return absl::OkStatus();
  }
  HandleCommand(std::get<CommandMessage>(message));
  return absl::OkStatus();
}

void Scheduler::Tick(SteadyTime now) {
  next_tick_ = now + options_.tick;
  if (options_.on_tick != nullptr) options_.on_tick();
  if (!store_.writable() && store_.ProbeWritable()) {
    std::deque<Message> again;
    again.swap(deferred_);
    HandleMessages(std::move(again));
  }
  devices_.Refresh();
  const std::vector<DeviceState> devices = devices_.List();
  metrics_.SetDevices(devices);
  WarnOfLinks(devices);
  LeaveFaultyDevices(devices, now);
  metrics_.SetSharedMemory(launcher_.shared_memory());
  std::map<std::string, int> workers;
  for (const auto& [id, attempt] : running_) {
    ++workers[attempt->ladder.begun() ? "stopping"
              : attempt->adopted      ? "adopted"
              : attempt->ready        ? "running"
                                      : "starting"];
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
    if (device.link_warning.empty() || device.is_idle()) continue;
    const auto found = running_.find(device.holders.front().job);
    if (found == running_.end()) continue;
    RunningAttempt& attempt = *found->second;
    // With a worker that copies: at rest the bus may be slow on purpose.
    if (attempt.link_warned || !attempt.stepped) continue;
    attempt.link_warned = true;
    LogWarning("device {}: {}", device.name, device.link_warning);
    ApplyWarning(attempt, {.reason = "LINK_BELOW_PROFILE", .message = device.link_warning})
        .IgnoreError();  // a full disk: the metric still says it
  }
}

RunningAttempt* Scheduler::Find(const AttemptKey& key) {
  const auto found = running_.find(key.job_id);
  return found != running_.end() && found->second->key == key ? found->second.get() : nullptr;
}

}  // namespace blockswap::server
