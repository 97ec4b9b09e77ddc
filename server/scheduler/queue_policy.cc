// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/queue_policy.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "server/scheduler/reservation.h"

namespace blockswap::server {
namespace {

WaitReason Reason(WaitKind kind, std::string device, std::string other) {
  WaitReason reason;
  reason.kind = kind;
  reason.device = std::move(device);
  reason.other = std::move(other);
  return reason;
}

// One round over the queue: what starts in it is taken off the room that the next job sees.
class Round final {
 public:
  Round(const QueueState& state, const QueueOptions& options)
      : state_(state), options_(options), room_(state, options.max_jobs_per_device) {}

  QueueDecision Decide(const QueuedJob& job) {
    QueueDecision decision;
    if (job.deadline_micros <= state_.steady_micros) {
      decision.verdict = Verdict::kExpired;
    } else if (job.held) {
      decision.reason = Reason(WaitKind::kHeld, "", "");
    } else {
      DecideUnheld(job, decision);
      // Who starts now is ahead of nobody any more.
      if (decision.verdict == Verdict::kWait) decision.position = ++position_;
    }
    return decision;
  }

 private:
  void DecideUnheld(const QueuedJob& job, QueueDecision& decision) {
    if (state_.paused) {
      decision.reason = Reason(WaitKind::kPaused, "", state_.pause_reason);
    } else if (job.ready_micros > state_.steady_micros) {
      decision.reason = Reason(WaitKind::kBackoff, "", "");
      decision.reason.seconds = (job.ready_micros - state_.steady_micros + 999999) / 1000000;
    } else {
      Place(job, decision);
    }
  }

  // Healthy ones that the job may use; many jobs ask for the same.
  struct Choice {
    std::vector<size_t> healthy;
    WaitReason none;  // why there is none
  };

  const Choice& ChoiceOf(const std::string& requested) {
    const auto [entry, is_new] = choices_.try_emplace(requested);
    if (!is_new) return entry->second;
    Choice& choice = entry->second;
    choice.none = Reason(WaitKind::kDevice, requested, "");
    for (size_t i = 0; i < state_.devices.size(); ++i) {
      const DeviceState& device = state_.devices[i];
      if (!DeviceFits(device, requested)) continue;
      if (device.health == DeviceHealth::kHealthy) {
        choice.healthy.push_back(i);
      } else if (choice.none.kind == WaitKind::kDevice) {
        choice.none = Reason(WaitKind::kUnhealthy, device.name, device.health_reason);
      }
    }
    return choice;
  }

  void Place(const QueuedJob& job, QueueDecision& decision) {
    const Choice& choice = ChoiceOf(job.requested_device);
    if (choice.healthy.empty()) {
      decision.reason = choice.none;
      return;
    }
    std::optional<size_t> best;
    std::optional<WaitReason> obstacle;
    for (const size_t i : choice.healthy) {
      if (room_.devices[i].places < 1) continue;
      std::optional<WaitReason> here = WhyNotHere(job, room_.devices[i], room_.host);
      if (!here.has_value()) here = Overtakes(job, i);
      if (here.has_value()) {
        if (!obstacle.has_value()) obstacle = std::move(here);
      } else if (!best.has_value() || Rank(job, i) < Rank(job, *best)) {
        best = i;
      }
    }
    if (best.has_value()) {
      Start(job, *best, decision);
    } else {
      Wait(job, choice.healthy, std::move(obstacle), decision);
    }
  }

  // Smaller is better: a GPU before the host, where the base was used last, and the smallest that
  // is enough, so that large jobs find large cards.
  std::tuple<bool, bool, int64_t, size_t> Rank(const QueuedJob& job, size_t index) const {
    const DeviceState& device = state_.devices[index];
    const auto last = state_.device_base.find(device.name);
    const bool is_warm = !job.needs.base_key.empty() && last != state_.device_base.end() &&
                         last->second == job.needs.base_key;
    return {device.kind == DeviceKind::kHost, !is_warm, device.total_bytes, index};
  }

  std::optional<WaitReason> Overtakes(const QueuedJob& job, size_t index) const {
    const int64_t host = HostNeed(job, state_.devices[index].kind, room_.host);
    for (const Reservation& reservation : reservations_) {
      const int64_t limit = reservation.start_micros != kNever
                                ? reservation.start_micros
                                : state_.steady_micros + options_.max_delay.count();
      if (EndOf(job) <= limit) continue;
      if (reservation.device == index &&
          (reservation.spare_places < 1 || reservation.spare_bytes < job.needs.device_bytes)) {
        return Reason(WaitKind::kAhead, state_.devices[index].name, reservation.job);
      }
      if (host > reservation.spare_host_bytes) {
        WaitReason reason = Reason(WaitKind::kAhead, state_.devices[index].name, reservation.job);
        reason.need_bytes = host;
        reason.have_bytes = std::max<int64_t>(0, reservation.spare_host_bytes);
        return reason;
      }
    }
    return std::nullopt;
  }

  int64_t EndOf(const QueuedJob& job) const {
    if (!(job.expected_seconds > 0)) return kNever;
    constexpr double kLongest = 3e9;  // a century: keeps the sum from overflowing
    return state_.steady_micros +
           static_cast<int64_t>(std::min(job.expected_seconds, kLongest) * 1e6);
  }

  void Start(const QueuedJob& job, size_t index, QueueDecision& decision) {
    decision.verdict = Verdict::kStart;
    decision.device = state_.devices[index].name;
    const RunningJob started = {job.id, decision.device, job.needs.device_bytes,
                                HostNeed(job, state_.devices[index].kind, room_.host), EndOf(job)};
    for (Reservation& reservation : reservations_) {
      if (started.end_micros <= reservation.start_micros && reservation.start_micros != kNever)
        continue;
      reservation.spare_host_bytes -= started.host_bytes;
      if (reservation.device != index) continue;
      --reservation.spare_places;
      reservation.spare_bytes -= started.device_bytes;
    }
    room_.Take(started, index);
  }

  void Wait(const QueuedJob& job, const std::vector<size_t>& devices,
            std::optional<WaitReason> obstacle, QueueDecision& decision) {
    size_t nearest = devices.front();
    int64_t seconds = 0;
    const bool is_overtaking = obstacle.has_value() && obstacle->kind == WaitKind::kAhead;
    if (!is_overtaking && reservations_.size() < state_.devices.size()) {
      const auto reservation = room_.Reserve(job, devices, reservations_, state_.steady_micros);
      if (reservation.has_value()) {
        nearest = reservation->device;
        if (reservation->start_micros != kNever) {
          seconds = (reservation->start_micros - state_.steady_micros + 999999) / 1000000;
        }
        reservations_.push_back(*reservation);
      }
    }
    if (obstacle.has_value()) {
      decision.reason = *std::move(obstacle);
    } else {
      decision.reason = Reason(WaitKind::kDevice, state_.devices[nearest].name,
                               room_.HolderOf(state_.devices[nearest].name));
      decision.reason.seconds = seconds;
    }
  }

  const QueueState& state_;
  const QueueOptions& options_;
  MachineRoom room_;
  std::vector<Reservation> reservations_;  // at most one a device
  std::map<std::string, Choice> choices_;
  int64_t position_ = 0;
};

}  // namespace

std::vector<size_t> QueueOrder(const std::vector<QueuedJob>& jobs,
                               const std::set<std::string>& loaded_bases,
                               const QueueOptions& options) {
  // The wall clock may have been set back between two jobs: no job is older than one before it.
  std::vector<std::tuple<int64_t, int64_t, int64_t>> keys;
  keys.reserve(jobs.size());
  int64_t since = std::numeric_limits<int64_t>::min();
  for (const QueuedJob& job : jobs) {
    since = std::max(since, job.create_micros);
    int64_t age = since;
    const auto is_loaded = [&loaded_bases](const std::string& key) {
      return !key.empty() && loaded_bases.count(key) != 0;
    };
    if (is_loaded(job.needs.base_key) || is_loaded(job.needs.other_base_key)) {
      age -= options.base_lead.count();
    }
    const int64_t aging = options.aging.count();
    keys.emplace_back(aging > 0 ? age - job.priority * aging : -int64_t{job.priority}, age,
                      job.sequence);
  }
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&keys](size_t a, size_t b) { return keys[a] < keys[b]; });
  return order;
}

std::vector<QueueDecision> DecideQueue(const std::vector<QueuedJob>& jobs, const QueueState& state,
                                       const QueueOptions& options) {
  Round round(state, options);
  std::vector<QueueDecision> decisions;
  decisions.reserve(jobs.size());
  for (const size_t index : QueueOrder(jobs, state.loaded_bases, options)) {
    decisions.push_back(round.Decide(jobs[index]));
    decisions.back().job = index;
  }
  return decisions;
}

}  // namespace blockswap::server
