// SPDX-License-Identifier: Apache-2.0
// Predicted step time of published models on consumer and data-centre cards, by way of swapping.
// From the step model: no GPU is needed.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "offload/base/status_macros.h"
#include "offload/plan/block_costs.h"
#include "offload/plan/device_profiles.h"
#include "offload/plan/planner.h"
#include "offload/plan/refusal.h"
#include "offload/plan/schedule.h"
#include "offload/plan/step_model.h"
#include "tests/bench/card_models.h"

namespace blockswap::bench {
namespace {

enum class CardPolicy { kEngine, kLayer, kRing, kTail, kExchange };
constexpr CardPolicy kPolicies[] = {CardPolicy::kEngine, CardPolicy::kLayer, CardPolicy::kRing,
                                    CardPolicy::kTail, CardPolicy::kExchange};
constexpr const char* kNames[] = {"this engine", "this engine, one linear at a time",
                                  "H2D ring, modulation streamed", "tail placement", "exchange"};

struct Row {
  std::string card, model, policy;
  bool fits = false;
  double step_seconds = 0, compute_seconds = 0;
  int64_t h2d_bytes = 0, d2h_bytes = 0;
  int64_t vram_bytes =
      0;  // where it does not fit: the least it needs, every saved input on the host
  int streamed = 0;
};

offload::PlanRequest Request(const offload::DeviceProfile& card, const CardModel& model,
                             CardPolicy policy) {
  offload::PlanRequest request;
  const bool ours = policy == CardPolicy::kEngine || policy == CardPolicy::kLayer;
  request.model = ProfileOf(model, /*host_modulation=*/ours);
  request.host_available_bytes = int64_t{1} << 40;
  request.lockable_bytes = std::numeric_limits<int64_t>::max();
  request.may_offload_inputs = true;
  request.constraints.checkpointing = offload::Toggle::kOn;  // what every policy can do
  if (!ours) request.constraints.ring_size = offload::kDefaultRingSize;
  if (policy == CardPolicy::kLayer) request.constraints.granularity = offload::Granularity::kLayer;
  if (policy == CardPolicy::kExchange) {
    request.constraints.mode = offload::TransferMode::kExchange;
  }
  return offload::RequestOn(card, std::move(request));
}

// The last blocks stream through two slots: as few as fit beside what `plan` needs besides blocks.
absl::StatusOr<int> TailLength(const offload::PlanRequest& request, const offload::SwapPlan& plan) {
  const offload::Prediction& predicted = plan.prediction;
  const int64_t rest = predicted.device_bytes - predicted.ring_bytes - predicted.resident_bytes;
  const std::vector<offload::BlockProfile>& blocks = request.model.blocks;
  int64_t resident = 0, largest = 0;
  for (const offload::BlockProfile& block : blocks) resident += block.bytes;
  if (rest + resident <= request.device_free_bytes) return 0;
  for (int away = 1; away <= static_cast<int>(blocks.size()); ++away) {
    const int64_t bytes = blocks[blocks.size() - static_cast<size_t>(away)].bytes;
    resident -= bytes;
    largest = std::max(largest, bytes);
    const int slots = std::min(offload::kDefaultRingSize, away);
    if (rest + resident + slots * largest <= request.device_free_bytes) return away;
  }
  return absl::FailedPreconditionError("no tail fits");
}

// The least that a policy needs: every block away that may be, every saved input on the host.
int64_t LeastBytes(const offload::PlanRequest& request, CardPolicy policy) {
  offload::ActivationChoice activations;
  activations.num_offloaded = static_cast<int>(request.model.blocks.size());
  const int slots = policy == CardPolicy::kTail ? offload::kDefaultRingSize : 1;
  return offload::SmallestCandidate(request, slots, /*free_choice=*/true, activations).device_bytes;
}

struct TailStep {
  double seconds = 0;
  int64_t h2d_bytes = 0;
};

// Saved inputs wait where `plan` has them.
TailStep SimulateTail(const offload::PlanRequest& request, const offload::SwapPlan& plan,
                      int away) {
  const int blocks = static_cast<int>(request.model.blocks.size());
  std::vector<int> tail;
  for (int block = blocks - away; block < blocks; ++block) tail.push_back(block);
  offload::ActivationChoice activations;
  for (const offload::BlockPlacement& block : plan.blocks) {
    activations.num_offloaded += block.offloads_boundary ? 1 : 0;
  }
  const offload::BlockCosts costs = offload::MakeCosts(request, /*tiers=*/{}, activations);
  const int ring = std::min(offload::kDefaultRingSize, away);
  const offload::TransferSchedule schedule =
      offload::RingSchedule(offload::PassKind::kTraining, blocks, tail, ring, /*micro_batches=*/1);
  TailStep step;
  step.h2d_bytes = plan.prediction.boundary_host_bytes;
  step.seconds = offload::SimulateCycle(schedule, offload::PassKind::kTraining,
                                        offload::TransferMode::kH2dOnly, costs)
                     .cycle;
  for (const offload::Transfer& transfer : schedule.transfers) {
    step.h2d_bytes += request.model.blocks[static_cast<size_t>(transfer.load)].bytes;
  }
  return step;
}

absl::StatusOr<Row> MakeRow(const offload::DeviceProfile& card, const CardModel& model,
                            CardPolicy policy) {
  Row row;
  row.card = card.name;
  row.model = model.name;
  row.policy = kNames[static_cast<size_t>(policy)];
  const offload::PlanRequest request = Request(card, model, policy);
  const absl::StatusOr<offload::SwapPlan> plan = offload::Plan(request);
  if (absl::IsFailedPrecondition(plan.status())) {  // does not fit: an answer
    row.vram_bytes = LeastBytes(request, policy);
    return row;
  }
  BLOCKSWAP_RETURN_IF_ERROR(plan.status());
  row.fits = true;
  row.streamed = plan->num_streamed();
  row.h2d_bytes = plan->prediction.h2d_bytes_per_step;
  row.d2h_bytes = plan->prediction.d2h_bytes_per_step;
  row.vram_bytes = plan->prediction.device_bytes;
  row.compute_seconds = absl::ToDoubleSeconds(plan->prediction.compute);
  row.step_seconds = absl::ToDoubleSeconds(plan->prediction.step);
  if (policy == CardPolicy::kTail) {
    offload::SwapPlan rest = *plan;
    absl::StatusOr<int> away = TailLength(request, rest);
    if (!away.ok()) {  // the planner's slots may be smaller than the largest block
      offload::PlanRequest offloading = request;
      offloading.constraints.activation_offload = offload::Toggle::kOn;
      BLOCKSWAP_ASSIGN_OR_RETURN(rest, offload::Plan(offloading));
      away = TailLength(request, rest);
    }
    BLOCKSWAP_RETURN_IF_ERROR(away.status());
    row.streamed = *away;
    const TailStep step = SimulateTail(request, rest, *away);
    row.step_seconds = step.seconds;
    row.h2d_bytes = step.h2d_bytes;
    row.d2h_bytes = rest.prediction.boundary_host_bytes;
    row.vram_bytes = rest.prediction.device_bytes;
  }
  return row;
}

std::string Gib(int64_t bytes) {
  return absl::StrFormat("%.1f", static_cast<double>(bytes) / (int64_t{1} << 30));
}

void PrintHeading() {
  std::printf(
      "| card | model | policy | blocks away | step s | compute s | over the link GiB | VRAM GiB "
      "|\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
}

void Print(const Row& row) {
  if (!row.fits) {
    std::printf("| %s | %s | %s | - | does not fit | - | - | needs %s |\n", row.card.c_str(),
                row.model.c_str(), row.policy.c_str(), Gib(row.vram_bytes).c_str());
    return;
  }
  std::printf("| %s | %s | %s | %d | %.2f | %.2f | %s | %s |\n", row.card.c_str(),
              row.model.c_str(), row.policy.c_str(), row.streamed, row.step_seconds,
              row.compute_seconds, Gib(row.h2d_bytes + row.d2h_bytes).c_str(),
              Gib(row.vram_bytes).c_str());
}

nlohmann::ordered_json ToJson(const Row& row) {
  nlohmann::ordered_json out = {{"card", row.card}, {"model", row.model}, {"policy", row.policy}};
  out["fits"] = row.fits;
  out["streamed"] = row.streamed;
  out["step_seconds"] = row.step_seconds;
  out["compute_seconds"] = row.compute_seconds;
  out["h2d_bytes"] = row.h2d_bytes;
  out["d2h_bytes"] = row.d2h_bytes;
  out["vram_bytes"] = row.vram_bytes;
  return out;
}

absl::Status RunBench(const std::string& json_file) {
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  PrintHeading();
  for (const offload::DeviceProfile& card : offload::DeviceProfiles()) {
    for (const CardModel& model : CardModels()) {
      std::vector<Row> rows;
      for (const CardPolicy policy : kPolicies) {
        BLOCKSWAP_ASSIGN_OR_RETURN(rows.emplace_back(), MakeRow(card, model, policy));
        cases.push_back(ToJson(rows.back()));
      }
      // A model that is resident anyway tells nothing about swapping.
      const bool swaps = std::any_of(rows.begin(), rows.end(),
                                     [](const Row& row) { return !row.fits || row.streamed > 0; });
      if (!swaps) continue;
      for (const Row& row : rows) Print(row);
    }
  }
  if (json_file.empty()) return absl::OkStatus();
  std::ofstream file(json_file);
  file << nlohmann::ordered_json{{"cases", std::move(cases)}}.dump(2) << '\n';
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError("cannot write " + json_file);
}

}  // namespace
}  // namespace blockswap::bench

int main(int argc, char** argv) {
  CLI::App app("predicts the step time of published models on known cards", "bench_cards");
  std::string json_file;
  app.add_option("--json", json_file, "write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = blockswap::bench::RunBench(json_file);
  if (!status.ok()) std::fprintf(stderr, "bench_cards: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
