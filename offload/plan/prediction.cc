// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/prediction.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "offload/base/byte_size.h"
#include "offload/plan/block_costs.h"
#include "offload/plan/slot_layout.h"
#include "offload/plan/step_model.h"

namespace blockswap::offload {
namespace {

// Micro-batches that a step visits the blocks for one after another.
int Repeats(const PlanRequest& request, const Candidate& candidate) {
  return candidate.activations.block_major ? 1 : request.micro_batches;
}

bool TimesAreKnown(const PlanRequest& request, const HostTiers& tiers, const SwapPlan& plan) {
  if (tiers.file_bytes > 0 && request.link.file_bytes_per_second <= 0) return false;
  const bool moves = !plan.training.transfers.empty() || !plan.window.units.empty();
  return request.link.h2d_bytes_per_second > 0 || !moves;
}

std::string Percent(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

void ExplainWindow(const Candidate& candidate, SwapPlan& plan) {
  int fixed_in_passes = 0;
  for (const SlotGroup& group : candidate.groups) {
    fixed_in_passes += static_cast<int>(group.blocks.size() - group.cycling.size());
  }
  if (fixed_in_passes == 0) return;
  plan.notes.push_back(absl::StrCat("all ", candidate.streamed.size(),
                                    " blocks with a host copy share ", candidate.slots,
                                    " slots in a training step; a forward-only pass leaves ",
                                    fixed_in_passes, " of them in place and moves the others"));
}

void ExplainActivations(const PlanRequest& request, const Candidate& candidate, SwapPlan& plan) {
  const ActivationChoice& choice = candidate.activations;
  const auto kept = std::count(choice.keeps.begin(), choice.keeps.end(), true);
  if (kept > 0) {
    plan.notes.push_back(absl::StrCat(kept,
                                      kept == 1 ? " resident block keeps its activations"
                                                : " resident blocks keep their activations",
                                      " instead of recomputing: memory was left for that"));
  }
  if (choice.num_offloaded > 0) {
    plan.notes.push_back(absl::StrCat("the inputs of ", choice.num_offloaded,
                                      " blocks wait on the host (",
                                      base::FormatByteSize(candidate.boundary_host_bytes), ")",
                                      request.constraints.activation_offload == Toggle::kOn
                                          ? ": activation_offload is on"
                                          : ": the budget does not hold them all on the device"));
  }
  if (choice.block_major) {
    plan.notes.push_back(absl::StrCat(
        "all ", request.micro_batches,
        " micro-batches of a step go through each block together: ", "one upload serves them all"));
  }
}

void ExplainTiers(const PlanRequest& request, const Budgets& budgets, const HostTiers& tiers,
                  SwapPlan& plan) {
  const bool wanted = request.constraints.pin_policy == PinPolicy::kAuto;
  const int64_t pageable = plan.prediction.pageable_bytes;
  if (pageable > 0 && wanted && !request.base_trains) {
    plan.notes.push_back(
        absl::StrCat(base::FormatByteSize(pageable), " of host masters stay pageable: only ",
                     base::FormatByteSize(request.lockable_bytes), " may be page-locked"));
  }
  if (tiers.file_bytes > 0) {
    plan.notes.push_back(
        absl::StrCat(base::FormatByteSize(tiers.file_bytes),
                     " of blocks are read from the checkpoint at each use: the host has ",
                     base::FormatByteSize(budgets.host_bytes), " for masters"));
  }
}

// In exchange mode a block waits for a spare host buffer to go down to.
void AddHostBuffers(const std::vector<BlockProfile>& blocks, const SwapPlan& plan,
                    BlockCosts& costs) {
  if (!plan.exchanges() || plan.slots == 0) return;
  const SlotLayout layout = LayoutSlots(plan, blocks);
  costs.host_buffer = layout.capacity_of;
  costs.spare_buffers.assign(layout.host_buffers.begin() + plan.num_streamed(),
                             layout.host_buffers.end());
}

// A plan made for all free memory fails when somebody else takes some of it.
void ExplainHostEvaluated(const PlanRequest& request, SwapPlan& plan) {
  const int64_t bytes = request.model.host_evaluated_bytes;
  if (bytes == 0) return;
  plan.notes.push_back(absl::StrCat(
      base::FormatByteSize(bytes),
      " of block weights are used on the host: they take no device memory and cross no link"));
}

void ExplainHeadroom(const PlanRequest& request, SwapPlan& plan) {
  const int64_t free = request.device_free_bytes;
  const int64_t needed = plan.prediction.device_bytes;
  if (free <= 0 || request.constraints.vram_budget_bytes.has_value()) return;
  // Less than a twentieth is left.
  if (needed <= free - free / 20) return;
  plan.notes.push_back(absl::StrCat("fits only while nothing else takes memory: needs ",
                                    base::FormatByteSize(needed), " of ",
                                    base::FormatByteSize(free), " free"));
}

void ExplainStall(SwapPlan& plan) {
  const Prediction& prediction = plan.prediction;
  const double step = absl::ToDoubleSeconds(prediction.step);
  const double stall = absl::ToDoubleSeconds(prediction.stall);
  if (step <= 0 || stall / step < 0.01) return;
  plan.notes.push_back(absl::StrCat(
      "compute waits for the link for ", Percent(stall / step),
      " of a step: more memory, a larger batch or fewer bytes a block would shorten it"));
}

}  // namespace

void PredictBytes(const PlanRequest& request, const Candidate& candidate, const HostTiers& tiers,
                  SwapPlan& plan) {
  const ModelProfile& model = request.model;
  Prediction& prediction = plan.prediction;
  prediction.device_bytes = candidate.device_bytes;
  prediction.ring_bytes = candidate.ring_bytes;
  prediction.resident_bytes = candidate.resident_bytes;
  prediction.edge_bytes = model.edge_bytes;
  prediction.adapter_bytes = model.adapter_bytes;
  prediction.optimizer_bytes = model.optimizer_bytes;
  prediction.activation_bytes = candidate.activation_bytes;
  prediction.pinned_bytes = tiers.pinned_bytes;
  prediction.pageable_bytes = tiers.pageable_bytes;
  prediction.file_bytes = tiers.file_bytes;
  prediction.boundary_host_bytes = candidate.boundary_host_bytes;
  for (const Transfer& transfer : plan.training.transfers) {
    prediction.h2d_bytes_per_step += model.blocks[static_cast<size_t>(transfer.load)].bytes;
    if (plan.exchanges()) {
      prediction.d2h_bytes_per_step += model.blocks[static_cast<size_t>(transfer.evict)].bytes;
    }
  }
  prediction.h2d_bytes_per_step += LayerCycleBytes(plan.window, PassKind::kTraining, model.blocks);
  const int64_t boundaries = candidate.boundary_host_bytes * Repeats(request, candidate);
  prediction.h2d_bytes_per_step += boundaries;
  prediction.d2h_bytes_per_step += boundaries;
}

LayerWindowRequest MakeLayerRequest(const PlanRequest& request, const Candidate& candidate,
                                    const HostTiers& tiers, const SwapPlan& plan) {
  LayerWindowRequest layers;
  layers.blocks = &request.model.blocks;
  layers.streamed = candidate.streamed;
  layers.training_visits = plan.training.visits;
  layers.forward_only_visits = plan.forward_only.visits;
  layers.repeats = candidate.activations.block_major ? request.micro_batches : 1;
  if (SpeedsAreKnown(request)) {
    layers.costs = MakeCosts(request, tiers.tier_of, candidate.activations);
  }
  return layers;
}

void PredictTimes(const PlanRequest& request, const Candidate& candidate, const HostTiers& tiers,
                  SwapPlan& plan) {
  if (!TimesAreKnown(request, tiers, plan)) return;
  Prediction& prediction = plan.prediction;
  BlockCosts costs = MakeCosts(request, tiers.tier_of, candidate.activations);
  AddHostBuffers(request.model.blocks, plan, costs);
  const TransferMode mode = plan.exchanges() ? TransferMode::kExchange : TransferMode::kH2dOnly;
  const bool streams_layers = !plan.window.units.empty();
  const CycleTimes times =
      streams_layers ? SimulateLayerCycle(plan.window, PassKind::kTraining,
                                          MakeLayerRequest(request, candidate, tiers, plan))
                     : SimulateCycle(plan.training, PassKind::kTraining, mode, costs);
  if (request.compute_flops_per_second <= 0) {
    // Without costs the cycle of layers counts bytes, not seconds.
    if (!streams_layers) prediction.copy = absl::Seconds(times.copy);
    return;
  }
  prediction.copy = absl::Seconds(times.copy);
  const double other = request.other_step_seconds;
  prediction.compute = absl::Seconds(times.compute + other);
  prediction.stall = absl::Seconds(times.stall);
  prediction.step = absl::Seconds(times.cycle + other);
  // Linears that move through a window: neither lane can be faster than what it has to do.
  const double bound = streams_layers ? std::max(times.compute, times.copy)
                                      : EvenSpacingBound(plan.training, PassKind::kTraining, costs);
  prediction.bound = absl::Seconds(bound + other);
  const double flushed = Repeats(request, candidate) *
                         FlushedRingBound(candidate.streamed, PassKind::kTraining, costs);
  prediction.even_spacing_bound = absl::Seconds(flushed + other);
}

void ExplainPlan(const PlanRequest& request, const Budgets& budgets, const Candidate& candidate,
                 const HostTiers& tiers, SwapPlan& plan) {
  if (candidate.streamed.empty() && request.constraints.ring_size.has_value() &&
      !Exchanges(request)) {
    plan.notes.push_back(absl::StrCat("ring_size ", *request.constraints.ring_size,
                                      " has no effect: no block streams"));
  }
  ExplainWindow(candidate, plan);
  ExplainActivations(request, candidate, plan);
  ExplainTiers(request, budgets, tiers, plan);
  ExplainHostEvaluated(request, plan);
  ExplainStall(plan);
  ExplainHeadroom(request, plan);
}

}  // namespace blockswap::offload
