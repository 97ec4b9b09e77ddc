// SPDX-License-Identifier: Apache-2.0
// sim_schedule: what the queue policy makes of a month on a 16-GPU box, beside plain first in,
// first out.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/bench/scheduling_simulation.h"

namespace blockswap::server {
namespace {

void Print(const char* name, const SimulationReport& report) {
  std::printf("%-7s %11.1f %% %10.2f %10.2f %10.2f %10.2f %12.2f %9lld %10.1f\n", name,
              100 * report.utilisation, report.mean_wait_hours, report.median_wait_hours,
              report.p95_wait_hours, report.max_wait_hours, report.max_first_hours,
              static_cast<long long>(report.longest_queue), report.mean_pass_micros);
  for (const std::string& violation : report.violations) {
    std::printf("VIOLATION %s\n", violation.c_str());
  }
}

// The longest queue that is accepted, with every device taken: what each tick of the server costs.
void TimePasses(size_t waiting, const TraceOptions& options, const QueueOptions& queue) {
  QueueState state;
  state.devices = SharedBox();
  state.host.memory_bytes = kBoxHostBytes;
  for (DeviceState& device : state.devices) {
    device.holders.push_back({"running", device.total_bytes});
    state.running.push_back({"running", device.name, device.total_bytes, 0, 3'600'000'000});
  }
  TraceOptions trace = options;
  while (true) {
    const auto drawn = DrawTrace(trace, static_cast<int>(state.devices.size()));
    if (drawn.size() < waiting) {
      trace.days *= 2;
      continue;
    }
    std::vector<QueuedJob> jobs;
    for (size_t i = 0; i < waiting; ++i) jobs.push_back(drawn[i].job);
    constexpr int kPasses = 50;
    const auto begin = std::chrono::steady_clock::now();
    size_t decisions = 0;
    for (int i = 0; i < kPasses; ++i) decisions += DecideQueue(jobs, state, queue).size();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%zu waiting jobs: %.2f ms a pass\n", decisions / kPasses,
                took.count() * 1e3 / kPasses);
    return;
  }
}

int Run(int argc, char** argv) {
  TraceOptions trace;
  QueueOptions queue;
  double aging_hours = 1;
  CLI::App app("Simulates the server's scheduling of a month of jobs on 16 GPUs.");
  app.add_option("--seed", trace.seed, "of arrivals, durations and sizes")->capture_default_str();
  app.add_option("--days", trace.days)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--load", trace.load, "offered, of the device time")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--estimate-sigma", trace.estimate_sigma, "log of how far estimates are off")
      ->capture_default_str();
  app.add_option("--unknown", trace.unknown_durations, "share of jobs without an estimate")
      ->capture_default_str();
  app.add_option("--aging-hours", aging_hours, "of waiting that count as a point of priority")
      ->capture_default_str();
  app.add_option("--jobs-per-device", queue.max_jobs_per_device)
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  size_t waiting = 0;
  app.add_option("--waiting", waiting, "instead: time passes over so many waiting jobs");
  CLI11_PARSE(app, argc, argv);
  queue.aging = std::chrono::microseconds(static_cast<int64_t>(aging_hours * 3600e6));

  if (waiting > 0) {
    TimePasses(waiting, trace, queue);
    return 0;
  }
  const auto jobs = DrawTrace(trace, static_cast<int>(SharedBox().size()));
  std::printf("seed %llu: %zu jobs in %.0f days on %zu GPUs, offered load %.2f\n",
              static_cast<unsigned long long>(trace.seed), jobs.size(), trace.days,
              SharedBox().size(), trace.load);
  std::printf("%-7s %13s %10s %10s %10s %10s %12s %9s %10s\n", "policy", "utilisation", "wait mean",
              "median h", "p95 h", "max h", "first max h", "queue max", "pass us");
  const SimulationReport fifo = Simulate(jobs, SimulatedPolicy::kFifo, queue);
  const SimulationReport policy = Simulate(jobs, SimulatedPolicy::kQueue, queue);
  Print("fifo", fifo);
  Print("queue", policy);
  return fifo.violations.empty() && policy.violations.empty() ? 0 : 1;
}

}  // namespace
}  // namespace blockswap::server

int main(int argc, char** argv) { return blockswap::server::Run(argc, argv); }
