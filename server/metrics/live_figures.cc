// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/live_figures.h"

namespace blockswap::server {
namespace {

double Stall(const SwapCounters& swap) {
  return swap.forward_stall_seconds + swap.backward_stall_seconds;
}

}  // namespace

void LiveFigures::WorkerStarted(const std::string& slot, const std::string& job, int attempt) {
  base::MutexLock lock(mutex_);
  Slot& now = slots_[slot] = Slot{};
  now.job = job;
  now.live.slot = slot;
  now.live.attempt = attempt;
  now.live.is_running = true;
}

void LiveFigures::WorkerEnded(const std::string& slot) {
  base::MutexLock lock(mutex_);
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return;
  found->second.live.is_running = false;
  found->second.live.swap.blocks_in_flight = 0;
}

void LiveFigures::Step(const std::string& slot, const WorkerStep& step, absl::Time now) {
  base::MutexLock lock(mutex_);
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return;
  std::deque<Sample>& samples = found->second.samples;
  // The first step is where the window begins: the counters of an adopted worker run since before
  // this server did, and a first step is like no other.
  Sample sample;
  if (!samples.empty()) {
    sample = samples.back();
    sample.steps += 1;
    sample.step_seconds += step.seconds;
  }
  sample.time = now;
  sample.swap = step.swap;
  samples.push_back(sample);
  // The newest of those that are too old stays: it is where the window begins.
  while (samples.size() > kMaxSamples || (samples.size() > 2 && samples[1].time < now - window_)) {
    samples.pop_front();
  }
  const Sample& first = samples.front();
  LiveJob& live = found->second.live;
  live.swap = step.swap;
  live.report_time = now;
  live.recent = {sample.steps - first.steps,
                 sample.step_seconds - first.step_seconds,
                 sample.swap.h2d_bytes - first.swap.h2d_bytes,
                 sample.swap.d2h_bytes - first.swap.d2h_bytes,
                 sample.swap.h2d_busy_seconds - first.swap.h2d_busy_seconds,
                 Stall(sample.swap) - Stall(first.swap),
                 sample.swap.hits - first.swap.hits,
                 sample.swap.late - first.swap.late,
                 sample.swap.misses - first.swap.misses};
}

void LiveFigures::Memory(const std::string& slot, const MemoryUpdate& memory, absl::Time now) {
  base::MutexLock lock(mutex_);
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return;
  found->second.live.memory = memory;
  found->second.live.report_time = now;
}

std::optional<LiveJob> LiveFigures::Find(const std::string& job) const {
  base::MutexLock lock(mutex_);
  for (const auto& [name, slot] : slots_) {
    if (slot.job == job) return slot.live;
  }
  return std::nullopt;
}

}  // namespace blockswap::server
