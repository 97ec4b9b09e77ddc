// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/scheduling_simulation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr double kMicrosPerHour = 3600e6;
constexpr size_t kMaxViolations = 10;

int64_t Hours(double hours) { return static_cast<int64_t>(hours * kMicrosPerHour); }

// Busy afternoons, quiet nights and weekends; 1 on average over a week.
double Rhythm(double hour) {
  const double day = 1 + 0.6 * std::sin(2 * std::numbers::pi * (hour - 9) / 24);
  const bool is_weekend = std::fmod(hour / 24, 7) >= 5;
  return day * (is_weekend ? 0.5 : 1.2);
}

double Percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto index = static_cast<size_t>(share * static_cast<double>(sorted.size() - 1));
  return sorted[index];
}

class JobMaker final {
 public:
  JobMaker(const TraceOptions& options, std::mt19937_64& random)
      : options_(options), random_(random) {}

  TraceJob Draw(int64_t sequence, int64_t arrival) {
    TraceJob drawn;
    QueuedJob& job = drawn.job;
    job.id = absl::StrCat("job-", sequence);
    job.sequence = sequence;
    job.create_micros = arrival;
    const double hours = std::min(
        options_.max_hours,
        std::exp(std::log(options_.median_minutes / 60) + options_.sigma * normal_(random_)));
    drawn.duration_micros = std::max<int64_t>(1'000'000, Hours(hours));
    if (uniform_(random_) >= options_.unknown_durations) {
      job.expected_seconds = hours * 3600 * std::exp(options_.estimate_sigma * normal_(random_));
    }
    // Pareto of shape 1.2 from 6 GiB on, cut at what the largest card has.
    const double size = 6 / std::pow(1 - uniform_(random_), 1 / 1.2);
    job.needs.device_bytes = static_cast<int64_t>(std::min(size, 76.0) * static_cast<double>(kGiB));
    // Streamed blocks wait in host memory: between nothing and four times what is on the device.
    job.needs.host_bytes =
        static_cast<int64_t>(static_cast<double>(job.needs.device_bytes) * 4 * uniform_(random_));
    job.needs.base_key = absl::StrCat("base-", ZipfOf(8));
    if (uniform_(random_) < 0.1) job.priority = uniform_(random_) < 0.5 ? 5 : -5;
    return drawn;
  }

 private:
  int ZipfOf(int count) {
    std::vector<double> weights(static_cast<size_t>(count));
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = 1 / static_cast<double>(i + 1);
    return std::discrete_distribution<int>(weights.begin(), weights.end())(random_);
  }

  const TraceOptions& options_;
  std::mt19937_64& random_;
  std::normal_distribution<double> normal_{0, 1};
  std::uniform_real_distribution<double> uniform_{0, 1};
};

// The mean of a log-normal that is cut at max_hours, by drawing: close enough to set a load.
double MeanHours(const TraceOptions& options) {
  std::mt19937_64 random(options.seed ^ 0x9e3779b97f4a7c15ULL);
  std::normal_distribution<double> normal(0, 1);
  constexpr int kDraws = 20000;
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    sum += std::min(options.max_hours, std::exp(std::log(options.median_minutes / 60) +
                                                options.sigma * normal(random)));
  }
  return sum / kDraws;
}

class Box final {
 public:
  Box(const std::vector<TraceJob>& trace, SimulatedPolicy policy, const QueueOptions& options)
      : trace_(trace), policy_(policy), options_(options) {
    state_.devices = SharedBox();
    state_.host.memory_bytes = kBoxHostBytes;
  }

  SimulationReport Run() {
    size_t next = 0;
    while (next < trace_.size() || !waiting_.empty() || !ends_.empty()) {
      const int64_t arrival = next < trace_.size() ? trace_[next].job.create_micros : kNever;
      const int64_t end = ends_.empty() ? kNever : ends_.begin()->first;
      if (arrival == kNever && end == kNever) {
        Violate(absl::StrCat(waiting_.size(), " jobs wait on an idle machine for ever"));
        break;
      }
      now_ = std::min(arrival, end);
      while (!ends_.empty() && ends_.begin()->first <= now_) Finish();
      while (next < trace_.size() && trace_[next].job.create_micros <= now_) {
        waiting_.push_back(trace_[next++].job);
      }
      report_.longest_queue =
          std::max(report_.longest_queue, static_cast<int64_t>(waiting_.size()));
      Pass();
    }
    return Summarise();
  }

 private:
  void Pass() {
    state_.steady_micros = now_;
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<QueueDecision> decisions =
        policy_ == SimulatedPolicy::kQueue ? DecideQueue(waiting_, state_, options_) : Fifo();
    pass_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ++report_.passes;
    for (const QueueDecision& decision : decisions) {
      QueuedJob& job = waiting_[decision.job];
      if (decision.position == 1 && decision.verdict == Verdict::kWait) {
        first_since_.try_emplace(job.id, now_);
      }
      if (decision.verdict == Verdict::kStart) {
        Start(job, decision.device);
        job.id.clear();
      } else if (policy_ == SimulatedPolicy::kQueue && MessageOf(decision.reason).empty()) {
        Violate(absl::StrCat(job.id, " waits without a reason"));
      }
    }
    std::erase_if(waiting_, [](const QueuedJob& job) { return job.id.empty(); });
  }

  // From the front until one does not fit anywhere.
  std::vector<QueueDecision> Fifo() {
    std::vector<QueueDecision> decisions;
    QueueState rest = state_;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      QueueDecision decision = DecideQueue({waiting_[i]}, rest, options_).front();
      decision.job = i;
      decision.position = static_cast<int64_t>(i) + 1;
      decisions.push_back(decision);
      if (decision.verdict != Verdict::kStart) break;
      Occupy(rest, waiting_[i], decision.device, kNever);
    }
    return decisions;
  }

  static DeviceState& DeviceOf(QueueState& state, const std::string& name) {
    return *std::find_if(state.devices.begin(), state.devices.end(),
                         [&name](const auto& device) { return device.name == name; });
  }

  static void Occupy(QueueState& state, const QueuedJob& job, const std::string& device,
                     int64_t end) {
    DeviceState& held = DeviceOf(state, device);
    held.holders.push_back({job.id, job.needs.device_bytes});
    held.free_bytes -= job.needs.device_bytes;
    state.host.memory_bytes -= job.needs.host_bytes;
    state.running.push_back({job.id, device, job.needs.device_bytes, job.needs.host_bytes, end});
  }

  void Start(const QueuedJob& job, const std::string& device) {
    const int64_t duration = trace_[static_cast<size_t>(job.sequence - 1)].duration_micros;
    const int64_t expected =
        job.expected_seconds > 0 ? now_ + static_cast<int64_t>(job.expected_seconds * 1e6) : kNever;
    Occupy(state_, job, device, expected);
    state_.device_base[device] = job.needs.base_key;
    const DeviceState& held = DeviceOf(state_, device);
    if (held.free_bytes < 0 || state_.host.memory_bytes < 0 ||
        static_cast<int>(held.holders.size()) > options_.max_jobs_per_device) {
      Violate(absl::StrCat(job.id, " was put on ", device, " without room for it"));
    }
    waits_.push_back(static_cast<double>(now_ - job.create_micros) / kMicrosPerHour);
    const auto first = first_since_.find(job.id);
    if (first != first_since_.end()) {
      report_.max_first_hours = std::max(
          report_.max_first_hours, static_cast<double>(now_ - first->second) / kMicrosPerHour);
    }
    ends_.emplace(now_ + duration, job.id);
    const int64_t window = trace_.back().job.create_micros;
    busy_hours_ += static_cast<double>(std::max<int64_t>(
                       0, std::min(now_ + duration, window) - std::min(now_, window))) /
                   kMicrosPerHour;
  }

  void Finish() {
    const std::string id = ends_.begin()->second;
    ends_.erase(ends_.begin());
    const auto running = std::find_if(state_.running.begin(), state_.running.end(),
                                      [&id](const auto& job) { return job.id == id; });
    DeviceState& device = DeviceOf(state_, running->device);
    device.free_bytes += running->device_bytes;
    std::erase_if(device.holders, [&id](const auto& hold) { return hold.job == id; });
    state_.host.memory_bytes += running->host_bytes;
    state_.running.erase(running);
  }

  void Violate(std::string what) {
    if (report_.violations.size() < kMaxViolations) report_.violations.push_back(std::move(what));
  }

  SimulationReport Summarise() {
    std::sort(waits_.begin(), waits_.end());
    report_.jobs = static_cast<int64_t>(waits_.size());
    report_.mean_wait_hours = std::accumulate(waits_.begin(), waits_.end(), 0.0) /
                              std::max<double>(1, static_cast<double>(waits_.size()));
    report_.median_wait_hours = Percentile(waits_, 0.5);
    report_.p95_wait_hours = Percentile(waits_, 0.95);
    report_.max_wait_hours = Percentile(waits_, 1);
    for (const TraceJob& job : trace_) {
      report_.longest_job_hours = std::max(
          report_.longest_job_hours, static_cast<double>(job.duration_micros) / kMicrosPerHour);
    }
    const double window =
        trace_.empty() ? 0 : static_cast<double>(trace_.back().job.create_micros) / kMicrosPerHour;
    const double devices = static_cast<double>(state_.devices.size());
    report_.utilisation = window > 0 ? busy_hours_ / (window * devices) : 0;
    report_.mean_pass_micros =
        pass_seconds_ * 1e6 / std::max<double>(1, static_cast<double>(report_.passes));
    return report_;
  }

  const std::vector<TraceJob>& trace_;
  const SimulatedPolicy policy_;
  const QueueOptions options_;
  QueueState state_;
  std::vector<QueuedJob> waiting_;
  std::multimap<int64_t, std::string> ends_;
  std::map<std::string, int64_t> first_since_;
  std::vector<double> waits_;
  double busy_hours_ = 0, pass_seconds_ = 0;
  int64_t now_ = 0;
  SimulationReport report_;
};

}  // namespace

std::vector<DeviceState> SharedBox() {
  std::vector<DeviceState> devices;
  for (int i = 0; i < 16; ++i) {
    DeviceState device;
    device.name = absl::StrCat("cuda-", i);
    device.kind = DeviceKind::kCuda;
    device.total_bytes = device.free_bytes = (i < 8 ? 24 : i < 12 ? 48 : 80) * kGiB;
    devices.push_back(device);
  }
  return devices;
}

std::vector<TraceJob> DrawTrace(const TraceOptions& options, int devices) {
  std::mt19937_64 random(options.seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  JobMaker maker(options, random);
  const double per_hour = options.load * devices / MeanHours(options);
  constexpr double kMaxRhythm = 1.6 * 1.2;
  std::exponential_distribution<double> gap(per_hour * kMaxRhythm);
  std::vector<TraceJob> trace;
  // Thinning: arrivals at the highest rate, of which the quiet hours keep fewer.
  for (double hour = gap(random); hour < options.days * 24; hour += gap(random)) {
    if (uniform(random) * kMaxRhythm > Rhythm(hour)) continue;
    trace.push_back(maker.Draw(static_cast<int64_t>(trace.size()) + 1, Hours(hour)));
  }
  return trace;
}

SimulationReport Simulate(const std::vector<TraceJob>& trace, SimulatedPolicy policy,
                          const QueueOptions& options) {
  return Box(trace, policy, options).Run();
}

}  // namespace blockswap::server
