// SPDX-License-Identifier: Apache-2.0
// Step time of every way to swap a stack of blocks, each as a share of the physical bound.
//
// The link is the host device's, set so that the copies of a step take a quarter of its compute up
// to four times that. Compute is a stand-in that takes exactly the time it should, so what is
// measured is the swapping alone: copies, events, threads and schedules are the real ones.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "offload/base/status_macros.h"
#include "tests/bench/swap_case.h"

namespace blockswap::bench {
namespace {

constexpr double kBackwardOverForward = 2.9;  // facts: 29 ms forward, 85 ms recompute and backward

struct Flags {
  std::string json_file;
  int blocks = 60, steps = 3;
  double forward_ms = 1.5;
  bool brief = false;
};

struct Grid {
  std::vector<double> ratios = {0.25, 0.5, 1, 2, 4};
  std::vector<int> streamed;
};

Grid MakeGrid(const Flags& flags) {
  Grid grid;
  // A third, two thirds and 14 of 15 blocks.
  grid.streamed = {flags.blocks / 3, flags.blocks * 2 / 3, flags.blocks * 14 / 15};
  if (flags.brief) {
    grid.ratios = {0.5, 2};
    grid.streamed = {flags.blocks * 2 / 3};
  }
  return grid;
}

nlohmann::ordered_json ToJson(const BlockStack& stack, const SwapCase& row,
                              const CaseResult& result) {
  nlohmann::ordered_json out;
  out["policy"] = PolicyName(row.policy);
  out["ratio"] = row.ratio;
  out["streamed"] = row.streamed;
  out["streamed_share"] = static_cast<double>(row.streamed) / stack.blocks;
  out["step_seconds"] = result.step_seconds;
  out["fastest_seconds"] = result.fastest_seconds;
  out["simulated_seconds"] = result.simulated_seconds;
  out["bound_seconds"] = result.bound_seconds;
  out["of_bound"] = result.of_bound;
  out["h2d_bytes"] = result.h2d_bytes;
  out["d2h_bytes"] = result.d2h_bytes;
  out["device_weight_bytes"] = result.device_weight_bytes;
  return out;
}

void PrintRow(const SwapCase& row, const CaseResult& result) {
  std::printf("%5.2f %9d  %-9s %9.1f %9.1f %9.1f %9.3f %9.3f %9.2f\n", row.ratio, row.streamed,
              PolicyName(row.policy), result.step_seconds * 1e3, result.simulated_seconds * 1e3,
              result.bound_seconds * 1e3, result.of_bound,
              result.simulated_seconds > 0 ? result.bound_seconds / result.simulated_seconds : 0.0,
              static_cast<double>(result.h2d_bytes) / (1 << 20));
  std::fflush(stdout);
}

absl::Status RunGrid(const Flags& flags, const BlockStack& stack, nlohmann::ordered_json* cases) {
  const Grid grid = MakeGrid(flags);
  std::printf("%5s %9s  %-9s %9s %9s %9s %9s %9s %9s\n", "ratio", "streamed", "policy", "step ms",
              "model ms", "bound ms", "of bound", "model", "h2d MiB");
  for (const int streamed : grid.streamed) {
    for (const double ratio : grid.ratios) {
      for (const Policy policy : kPolicies) {
        const SwapCase row{policy, ratio, streamed};
        const absl::StatusOr<CaseResult> result = RunCase(stack, row, flags.steps);
        if (absl::IsUnimplemented(result.status())) continue;
        BLOCKSWAP_RETURN_IF_ERROR(result.status());
        PrintRow(row, *result);
        cases->push_back(ToJson(stack, row, *result));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RunBench(const Flags& flags) {
  BlockStack stack;
  stack.blocks = flags.blocks;
  stack.forward_seconds = flags.forward_ms * 1e-3;
  stack.backward_seconds = stack.forward_seconds * kBackwardOverForward;
  std::printf(
      "%d blocks, %.2f ms forward, %.2f ms backward each, ring of %d, medians of %d steps\n",
      stack.blocks, stack.forward_seconds * 1e3, stack.backward_seconds * 1e3, stack.ring,
      flags.steps);
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  BLOCKSWAP_RETURN_IF_ERROR(RunGrid(flags, stack, &cases));
  BLOCKSWAP_ASSIGN_OR_RETURN(const VisitOverhead overhead,
                             MeasureVisitOverhead(flags.brief ? 3 : 20));
  std::printf(
      "host time of a block visit with nothing to wait for: resident %.4f ms, streamed %.4f ms\n",
      overhead.resident_seconds * 1e3, overhead.streamed_seconds * 1e3);
  if (flags.json_file.empty()) return absl::OkStatus();
  nlohmann::ordered_json out;
  out["blocks"] = stack.blocks;
  out["forward_seconds"] = stack.forward_seconds;
  out["backward_seconds"] = stack.backward_seconds;
  out["ring"] = stack.ring;
  out["visit_overhead_seconds"] = {{"resident", overhead.resident_seconds},
                                   {"streamed", overhead.streamed_seconds}};
  out["cases"] = std::move(cases);
  std::ofstream file(flags.json_file);
  file << out.dump(2) << '\n';
  file.close();
  if (!file) return absl::UnavailableError("cannot write " + flags.json_file);
  return absl::OkStatus();
}

}  // namespace
}  // namespace blockswap::bench

int main(int argc, char** argv) {
  CLI::App app("measures every way to swap a stack of blocks against the physical bound",
               "bench_swap");
  blockswap::bench::Flags flags;
  app.add_option("--json", flags.json_file, "write the figures to this file");
  app.add_option("--blocks", flags.blocks)->check(CLI::Range(6, 1000));
  app.add_option("--steps", flags.steps, "measured steps of each row")->check(CLI::PositiveNumber);
  app.add_option("--forward-ms", flags.forward_ms, "of one block")->check(CLI::PositiveNumber);
  app.add_flag("--brief", flags.brief, "two ratios and one share only");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = blockswap::bench::RunBench(flags);
  if (!status.ok()) std::fprintf(stderr, "bench_swap: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
