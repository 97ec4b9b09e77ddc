// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/collector.h"

#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"
#include "server/base/log.h"
#include "server/base/thread_name.h"
#include "server/base/wall_clock.h"
#include "server/metrics/metric_parts.h"

namespace blockswap::server {
namespace {

double Seconds(SteadyTime::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

struct Collector::State {
  const char* name = nullptr;
  Read read;
  CollectorOptions options;
  std::thread thread;  // the collector's; nobody touches it once it is left behind

  base::Mutex mutex;
  base::CondVar changed;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  bool reading ABSL_GUARDED_BY(mutex) = false;
  bool overdue ABSL_GUARDED_BY(mutex) = false;  // the reading in progress was counted as an error
  bool failing ABSL_GUARDED_BY(mutex) = false;
  SteadyTime begun ABSL_GUARDED_BY(mutex){};
  SteadyTime read_at ABSL_GUARDED_BY(mutex){};
  Snapshot latest ABSL_GUARDED_BY(mutex);

  void NoteOverdueLocked(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!reading || overdue || now - begun < options.timeout) return;
    overdue = true;
    ++latest.errors;
  }
};

Collector::Collector(const char* name, Read read, CollectorOptions options)
    : name_(name), state_(std::make_shared<State>()) {
  state_->name = name;
  state_->read = std::move(read);
  state_->options = options;
  state_->thread = std::thread([state = state_] { Run(state); });
}

Collector::~Collector() {
  bool ended = false;
  {
    base::MutexLock lock(state_->mutex);
    state_->stopping = true;
    state_->changed.SignalAll();
    const SteadyTime deadline = SteadyNow() + state_->options.patience;
    while (!state_->ended && SteadyNow() < deadline) {
      state_->changed.WaitUntil(state_->mutex, deadline);
    }
    ended = state_->ended;
  }
  if (ended) {
    state_->thread.join();
    return;
  }
  LogWarning("metrics: {} does not answer; its thread is left behind", name_);
  // Never freed: the thread inside the hung call may use it until the process ends.
  static_cast<void>(new std::shared_ptr<State>(state_));
}

void Collector::Run(const std::shared_ptr<State>& state) {
  NameThisThread(state->name);
  SteadyTime next = SteadyNow();
  while (true) {
    {
      base::MutexLock lock(state->mutex);
      while (!state->stopping && SteadyNow() < next) state->changed.WaitUntil(state->mutex, next);
      if (state->stopping) break;
      state->reading = true;
      state->overdue = false;
      state->begun = SteadyNow();
    }
    absl::StatusOr<Families> families = state->read();
    const SteadyTime now = SteadyNow();
    bool complains = false;
    {
      base::MutexLock lock(state->mutex);
      state->NoteOverdueLocked(now);
      state->reading = false;
      state->latest.seconds = Seconds(now - state->begun);
      ++state->latest.rounds;
      if (families.ok()) {
        state->latest.families = *std::move(families);
        state->read_at = now;
      } else {
        ++state->latest.errors;
        state->latest.families.clear();
        complains = !state->failing;
      }
      state->failing = !families.ok();
      next = now + state->options.period;
      state->changed.SignalAll();
    }
    // Once an outage: the counter has the rest.
    if (complains) LogWarning("metrics: {}: {}", state->name, families.status().ToString());
  }
  base::MutexLock lock(state->mutex);
  state->ended = true;
  state->changed.SignalAll();
}

Collector::Snapshot Collector::Latest() const {
  const SteadyTime now = SteadyNow();
  base::MutexLock lock(state_->mutex);
  state_->NoteOverdueLocked(now);
  Snapshot snapshot = state_->latest;
  if (state_->overdue) {
    snapshot.families.clear();
    if (state_->reading) snapshot.seconds = Seconds(now - state_->begun);
  }
  return snapshot;
}

bool Collector::WaitForRounds(int64_t rounds, std::chrono::milliseconds patience) const {
  const SteadyTime deadline = SteadyNow() + patience;
  base::MutexLock lock(state_->mutex);
  while (state_->latest.rounds < rounds && SteadyNow() < deadline) {
    state_->changed.WaitUntil(state_->mutex, deadline);
  }
  return state_->latest.rounds >= rounds;
}

Collector& CollectorSet::Add(const char* name, Collector::Read read, CollectorOptions options) {
  collectors_.push_back(std::make_unique<Collector>(name, std::move(read), options));
  return *collectors_.back();
}

Collector::Families CollectorSet::Collect() const {
  Collector::Families families;
  CollectedFamily seconds = CollectedFamily::Gauge("blockswap_metrics_collect_seconds",
                                                   "Duration of a collector's last reading.");
  CollectedFamily errors =
      CollectedFamily::Counter("blockswap_metrics_collect_errors_total",
                               "Readings of a collector that failed or took too long.");
  for (const auto& collector : collectors_) {
    Collector::Snapshot latest = collector->Latest();
    seconds.Add({{"collector", collector->name()}}, latest.seconds);
    errors.Add({{"collector", collector->name()}}, latest.errors);
    families.insert(families.end(), std::make_move_iterator(latest.families.begin()),
                    std::make_move_iterator(latest.families.end()));
  }
  seconds.MoveTo(families);
  errors.MoveTo(families);
  return families;
}

}  // namespace blockswap::server
