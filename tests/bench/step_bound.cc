// SPDX-License-Identifier: Apache-2.0
// Measured step time of a real small transformer against the even-spacing bound: resident, ring,
// exchange and tail placement.
//
// The host device's link is set so that copying one block takes half, once and twice the mean time
// of a block visit.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "offload/base/status_macros.h"
#include "offload/plan/planner.h"
#include "offload/plan/schedule.h"
#include "offload/plan/step_model.h"
#include "tests/worker/testing/tiny_job.h"
#include "worker/train/compute_threads.h"
#include "worker/train/device_session.h"
#include "worker/train/loaded_job.h"
#include "worker/train/step_runner.h"

namespace blockswap::worker {
namespace {

constexpr int kLayers = 24;
constexpr int kStreamed = 18;
constexpr int kRing = 2;
constexpr int kWarmUpSteps = 1;
constexpr int kStepsOfRound = 3;

enum class Kind { kResident, kRing, kExchange, kTail };
constexpr const char* kNames[] = {"resident", "h2d ring", "exchange", "tail placement"};

struct StepTimes {
  double step = 0, forward = 0, backward = 0;  // seconds, medians
  int64_t h2d_bytes = 0;                       // of one step
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

testing::TinyJobOptions ModelOptions() {
  testing::TinyJobOptions options;
  options.layers = kLayers;
  options.heads = 4;
  options.head_dim = 64;
  options.rope_axes = {16, 24, 24};
  options.latent_height = options.latent_width = 32;  // 256 tokens
  options.ragged_text = false;
  options.text_tokens = 28;
  options.items = 4;
  options.batch_size = 1;
  options.max_steps = 1000;
  options.dtype = "fp32";
  return options;
}

absl::StatusOr<offload::SwapPlan> PlanFor(const JobInspection& job, const Machine& machine,
                                          Kind kind) {
  offload::PlanRequest request = MakePlanRequest(job, machine);
  request.constraints.blocks_to_swap = kind == Kind::kResident ? 0 : kStreamed;
  request.constraints.ring_size = kRing;
  request.constraints.mode =
      kind == Kind::kExchange ? offload::TransferMode::kExchange : offload::TransferMode::kH2dOnly;
  BLOCKSWAP_ASSIGN_OR_RETURN(offload::SwapPlan plan, offload::Plan(request));
  if (kind != Kind::kTail) return plan;
  // What peers do: the last blocks stream, with the same ring. The planner never makes this plan.
  std::vector<int> streamed;
  for (int block = 0; block < kLayers; ++block) {
    const bool away = block >= kLayers - kStreamed;
    plan.blocks[static_cast<size_t>(block)].residence =
        away ? offload::Residence::kStreamed : offload::Residence::kResident;
    if (away) streamed.push_back(block);
  }
  plan.training = offload::RingSchedule(offload::PassKind::kTraining, kLayers, streamed, kRing, 1);
  plan.forward_only =
      offload::RingSchedule(offload::PassKind::kForwardOnly, kLayers, streamed, kRing, 1);
  return plan;
}

// Runs `steps` steps of `kind` on a link of `bytes_per_second` (0: as fast as it goes).
absl::StatusOr<StepTimes> Measure(const JobInspection& job, Kind kind, double bytes_per_second,
                                  int steps) {
  DeviceOptions options;
  options.device = "host";
  options.host.h2d_bytes_per_second = options.host.d2h_bytes_per_second = bytes_per_second;
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceSession> session,
                             DeviceSession::Open(options));
  BLOCKSWAP_ASSIGN_OR_RETURN(const Machine machine, session->Measure());
  BLOCKSWAP_ASSIGN_OR_RETURN(offload::SwapPlan plan, PlanFor(job, machine, kind));
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedJob> loaded,
                             LoadedJob::Load(&job, std::move(plan), session.get()));
  StepRunner runner(&job, loaded->walk_context(), &loaded->optimizer());
  std::vector<double> step_seconds, forward, backward;
  StepTimes times;
  for (int step = 1; step <= kWarmUpSteps + steps; ++step) {
    const int64_t bytes_before = loaded->swapper().stats().h2d_bytes;
    const absl::Time begin = absl::Now();
    BLOCKSWAP_ASSIGN_OR_RETURN(StepOutcome outcome,
                               runner.ComputeGradients(step, [] { return absl::OkStatus(); }));
    BLOCKSWAP_RETURN_IF_ERROR(runner.Update(&outcome));
    if (step <= kWarmUpSteps) continue;
    step_seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
    forward.push_back(outcome.phase_seconds["forward"]);
    backward.push_back(outcome.phase_seconds["backward"]);
    times.h2d_bytes = loaded->swapper().stats().h2d_bytes - bytes_before;
  }
  times.step = Median(step_seconds);
  times.forward = Median(forward);
  times.backward = Median(backward);
  return times;
}

// The bound of even spacing with a small ring, from this round's own resident step: each of the S
// streamed blocks costs its copy or its share of the compute, whichever is more, once forward and
// once backward; T >= S max(W f, c) + S max(W q, c) + T0.
double SpacingBound(const StepTimes& resident, double copy_seconds) {
  const double copies = kStreamed * copy_seconds;
  const double outside = resident.step - resident.forward - resident.backward;
  return std::max(resident.forward, copies) + std::max(resident.backward, copies) + outside;
}

// The same for a ring that is not flushed at the turn nor between steps, so that R loads of each
// direction fall away. No schedule reaches it: the copy lane idles while the last blocks turn.
double ReuseBound(const JobInspection& job, const StepTimes& resident, double copy_seconds) {
  offload::BlockCosts costs;
  costs.forward.assign(kLayers, resident.forward / kLayers);
  costs.backward.assign(kLayers, resident.backward / kLayers);
  costs.h2d.assign(kLayers, copy_seconds);
  costs.d2h.assign(kLayers, copy_seconds);
  const std::vector<int> streamed =
      offload::EvenlySpaced(static_cast<int>(job.profile.blocks.size()), kStreamed);
  const offload::TransferSchedule schedule =
      offload::RingSchedule(offload::PassKind::kTraining, kLayers, streamed, kRing, 1);
  const double outside = resident.step - resident.forward - resident.backward;
  return offload::EvenSpacingBound(schedule, offload::PassKind::kTraining, costs) + outside;
}

struct Round {
  // Indexed by Kind; ratios: measured over this round's bounds.
  double step[4] = {}, ratio[4] = {}, reuse_ratio[4] = {};
  double bound = 0, reuse_bound = 0;
  int64_t h2d_bytes[4] = {};
};

// All four placements one after another; link speed and bound come from the round's own resident
// step.
absl::StatusOr<Round> RunRound(const JobInspection& job, double copy_over_visit) {
  Round round;
  double copy_seconds = 0, rate = 0;
  for (const Kind kind : {Kind::kResident, Kind::kRing, Kind::kExchange, Kind::kTail}) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const StepTimes times, Measure(job, kind, rate, kStepsOfRound));
    if (kind == Kind::kResident) {
      copy_seconds = copy_over_visit * (times.forward + times.backward) / (2.0 * kLayers);
      rate = static_cast<double>(job.profile.blocks[0].bytes) / copy_seconds;
      round.bound = SpacingBound(times, copy_seconds);
      round.reuse_bound = ReuseBound(job, times, copy_seconds);
    }
    const size_t index = static_cast<size_t>(kind);
    round.step[index] = times.step;
    round.ratio[index] = times.step / round.bound;
    round.reuse_ratio[index] = times.step / round.reuse_bound;
    round.h2d_bytes[index] = times.h2d_bytes;
  }
  return round;
}

absl::Status RunBench(int repeats) {
  const testing::TinyJob tiny(ModelOptions());
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobInspection job, tiny.Open());
  UseThreads(1);
  std::printf(
      "%d blocks of %.1f MiB, %d streamed, ring of %d, fp32, 1 thread, medians of %d rounds\n",
      kLayers, static_cast<double>(job.profile.blocks[0].bytes) / (1 << 20), kStreamed, kRing,
      repeats);
  std::printf("%-12s %-15s %10s %10s %14s %14s %12s\n", "copy/visit", "placement", "step ms",
              "bound ms", "measured/bound", "/reuse bound", "h2d MiB/step");
  for (const double copy_over_visit : {0.5, 1.0, 2.0}) {
    std::vector<Round> rounds;
    for (int i = 0; i < repeats; ++i) {
      BLOCKSWAP_ASSIGN_OR_RETURN(rounds.emplace_back(), RunRound(job, copy_over_visit));
    }
    for (size_t kind = 0; kind < 4; ++kind) {
      std::vector<double> steps, bounds, ratios, reuse_ratios;
      for (const Round& round : rounds) {
        steps.push_back(round.step[kind]);
        bounds.push_back(round.bound);
        ratios.push_back(round.ratio[kind]);
        reuse_ratios.push_back(round.reuse_ratio[kind]);
      }
      std::printf("%-12.1f %-15s %10.1f %10.1f %14.3f %14.3f %12.1f\n", copy_over_visit,
                  kNames[kind], Median(steps) * 1e3, Median(bounds) * 1e3, Median(ratios),
                  Median(reuse_ratios),
                  static_cast<double>(rounds[0].h2d_bytes[kind]) / (1 << 20));
    }
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace blockswap::worker

int main(int argc, char** argv) {
  blockswap::worker::EnsurePassiveWaiting(argv);
  int repeats = 7;
  if (argc > 2 || (argc == 2 && (!absl::SimpleAtoi(argv[1], &repeats) || repeats < 1))) {
    std::fprintf(stderr, "usage: step_bound [ROUNDS]\n");
    return 2;
  }
  const absl::Status status = blockswap::worker::RunBench(repeats);
  if (!status.ok()) std::fprintf(stderr, "step_bound: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
