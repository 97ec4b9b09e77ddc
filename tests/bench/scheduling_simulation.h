// SPDX-License-Identifier: Apache-2.0
// A month of a shared GPU box on a virtual clock: the server's own queue policy, invented jobs, no
// workers.
#ifndef BLOCKSWAP_TESTS_BENCH_SCHEDULING_SIMULATION_H_
#define BLOCKSWAP_TESTS_BENCH_SCHEDULING_SIMULATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/scheduler/queue_policy.h"

namespace blockswap::server {

// Arrivals, durations and sizes are shaped like those that were published of shared GPU clusters:
// Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads"
// (USENIX ATC 2019); Hu et al., "Characterization and Prediction of Deep Learning Workloads in
// Large-Scale GPU Datacenters" (SC 2021); Weng et al., "MLaaS in the Wild" (NSDI 2022): a Poisson
// process with a day and a week in it, log-normal durations over four orders of magnitude, few
// large jobs among many small ones, some bases used far more than others. No figure is copied from
// them; the parameters are ours.
struct TraceOptions {
  uint64_t seed = 1;
  double days = 30;
  double load = 0.85;  // of the device time, were every job placed at once
  double median_minutes = 40, sigma = 1.6, max_hours = 48;  // of durations
  double estimate_sigma = 0.3;                              // log of how far plans are off
  double unknown_durations = 0.15;  // share of jobs whose plan knows no speed
};

struct TraceJob {
  QueuedJob job;  // create_micros is the arrival
  int64_t duration_micros = 0;
};

// 16 cards: eight of 24 GiB, four of 48, four of 80.
std::vector<DeviceState> SharedBox();
inline constexpr int64_t kBoxHostBytes = int64_t{768} << 30;

std::vector<TraceJob> DrawTrace(const TraceOptions& options, int devices);

enum class SimulatedPolicy {
  kQueue,  // DecideQueue
  kFifo,   // nobody passes anybody
};

struct SimulationReport {
  int64_t jobs = 0;
  double utilisation = 0;  // of device time, until the last arrival
  double mean_wait_hours = 0, median_wait_hours = 0, p95_wait_hours = 0, max_wait_hours = 0;
  double max_first_hours = 0;    // that any job was first in line before it started
  double longest_job_hours = 0;  // of the trace
  int64_t passes = 0;
  double mean_pass_micros = 0;  // by the real clock
  int64_t longest_queue = 0;
  std::vector<std::string> violations;  // of what must hold at every moment; the first few
};

SimulationReport Simulate(const std::vector<TraceJob>& trace, SimulatedPolicy policy,
                          const QueueOptions& options);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_BENCH_SCHEDULING_SIMULATION_H_
