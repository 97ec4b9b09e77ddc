// SPDX-License-Identifier: Apache-2.0
#include "server/events/event_hub.h"

#include <algorithm>
#include <utility>

#include "server/base/thread_name.h"
#include "server/jobs/transitions.h"

namespace blockswap::server {

EventHub::EventHub(EventHubOptions options) : options_(options) {
  thread_ = std::thread([this] { Run(); });
}

EventHub::~EventHub() { Shutdown(); }

void EventHub::Publish(const std::vector<EventRecord>& events) {
  base::MutexLock lock(mutex_);
  for (const EventRecord& event : events) {
    queue_.push_back(std::make_shared<const EventRecord>(event));
    if (IsTerminal(event.state)) {
      progress_.erase(event.job_id);
      continue;
    }
    // Progress that waits is older: of another state or attempt it may not follow.
    PendingProgress& pending = progress_[event.job_id];
    pending.told = event.state;
    pending.attempt = event.attempt;
    if (pending.event != nullptr && !pending.Follows(*pending.event)) pending.event = nullptr;
  }
  wake_.Signal();
}

void EventHub::PublishProgress(EventRecord progress) {
  base::MutexLock lock(mutex_);
  PendingProgress& pending = progress_[progress.job_id];
  // It was taken from the job before the state that is told already.
  if (!pending.Follows(progress)) return;
  pending.event = std::make_shared<const EventRecord>(std::move(progress));
  wake_.Signal();
}

int64_t EventHub::Subscribe(std::weak_ptr<EventSink> sink, int64_t last_stored_sequence) {
  base::MutexLock lock(mutex_);
  sinks_.push_back(std::move(sink));
  // Before the first event of this process nothing was delivered: what the store holds is then the
  // past.
  if (delivered_ == 0 && queue_.empty()) return last_stored_sequence;
  return delivered_ != 0 ? delivered_ : queue_.front()->sequence - 1;
}

std::vector<SharedEvent> EventHub::TakeDue(SteadyTime now) {
  std::vector<SharedEvent> due(queue_.begin(), queue_.end());
  queue_.clear();
  if (!due.empty()) delivered_ = due.back()->sequence;
  for (auto& [job, pending] : progress_) {
    if (pending.event != nullptr && now - pending.sent >= options_.progress_interval) {
      due.push_back(std::exchange(pending.event, nullptr));
      pending.sent = now;
    }
  }
  return due;
}

std::vector<std::shared_ptr<EventSink>> EventHub::LiveSinks() {
  std::vector<std::shared_ptr<EventSink>> live;
  auto gone = [&live](const std::weak_ptr<EventSink>& weak) {
    std::shared_ptr<EventSink> sink = weak.lock();
    if (sink == nullptr) return true;
    live.push_back(std::move(sink));
    return false;
  };
  sinks_.erase(std::remove_if(sinks_.begin(), sinks_.end(), gone), sinks_.end());
  return live;
}

void EventHub::Run() {
  NameThisThread("event-hub");
  SteadyTime next_tick = SteadyNow() + options_.tick_interval;
  bool stopping = false;
  while (!stopping) {
    std::vector<SharedEvent> due;
    std::vector<std::shared_ptr<EventSink>> sinks;
    {
      base::MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_ && SteadyNow() < next_tick) {
        wake_.WaitUntil(mutex_, next_tick);
      }
      stopping = stopping_;
      due = TakeDue(SteadyNow());
      sinks = LiveSinks();
    }
    const SteadyTime now = SteadyNow();
    const bool ticks = now >= next_tick;
    if (ticks) next_tick = now + options_.tick_interval;
    for (const auto& sink : sinks) {
      if (!due.empty()) sink->OnEvents(due);
      if (ticks) sink->OnTick(now);
      if (stopping) sink->OnShutdown();
    }
  }
}

void EventHub::Shutdown() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    wake_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace blockswap::server
