// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/planner.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "offload/plan/candidate.h"
#include "offload/plan/refusal.h"
#include "offload/plan/schedule.h"
#include "offload/plan/step_model.h"

namespace blockswap::offload {
namespace {

absl::Status CheckRequest(const PlanRequest& request) {
  const MemoryConstraints& constraints = request.constraints;
  if (request.model.blocks.empty()) return absl::InvalidArgumentError("model has no blocks");
  if (request.micro_batches < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro_batches must be at least 1, got ", request.micro_batches));
  }
  if (constraints.ring_size.value_or(1) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring_size must be at least 1, got ", *constraints.ring_size));
  }
  const int maximum = MaxBlocksToSwap(request.model, constraints.mode);
  const int asked = constraints.blocks_to_swap.value_or(0);
  if (asked < 0 || asked > maximum) {
    return absl::InvalidArgumentError(
        absl::StrCat("blocks_to_swap must be between 0 and ", maximum, " for this model in mode ",
                     TransferModeName(constraints.mode), ", got ", asked));
  }
  if (constraints.vram_budget_bytes.value_or(1) < 1 ||
      constraints.host_budget_bytes.value_or(1) < 1) {
    return absl::InvalidArgumentError("memory budgets must be positive; leave them out for auto");
  }
  return absl::OkStatus();
}

struct Choice {
  Candidate candidate;
  bool found = false;
};

// The smallest number of streamed blocks that fits: every byte that is left over goes to residents.
Choice FirstFit(const PlanRequest& request, const Budgets& budgets, int ring_size) {
  const MemoryConstraints& constraints = request.constraints;
  const int maximum = MaxBlocksToSwap(request.model, constraints.mode);
  const int first = constraints.blocks_to_swap.value_or(0);
  const int last = constraints.blocks_to_swap.value_or(maximum);
  for (int blocks_to_swap = first; blocks_to_swap <= last; ++blocks_to_swap) {
    Candidate candidate = MakeCandidate(request, blocks_to_swap, ring_size);
    if (Fits(candidate, budgets)) return {std::move(candidate), true};
  }
  return {};
}

// Splits the masters into pinned and pageable, in streamed order: the same split HostMasters makes
// under this limit.
absl::Status AssignTiers(const PlanRequest& request, const Candidate& candidate, SwapPlan& plan) {
  const PinPolicy policy = request.constraints.pin_policy;
  const int64_t limit = request.lockable_bytes;
  Prediction& prediction = plan.prediction;
  const bool all_pinned = policy != PinPolicy::kNever && candidate.host_bytes <= limit;
  if (policy == PinPolicy::kRequired && !all_pinned) {
    return absl::FailedPreconditionError(absl::StrCat(
        "page-locked host memory too small: needed ", base::FormatByteSize(candidate.host_bytes),
        " for ", candidate.streamed.size(), " streamed blocks, available ",
        base::FormatByteSize(limit), "; would fit: pinned_memory auto, a higher RLIMIT_MEMLOCK",
        " (ulimit -l), or a lower blocks_to_swap"));
  }
  if (all_pinned) {
    prediction.pinned_bytes = candidate.host_bytes;
  } else if (plan.mode == TransferMode::kExchange || policy == PinPolicy::kNever) {
    prediction.pageable_bytes = candidate.host_bytes;
  }
  for (int block : candidate.streamed) {
    HostTier tier = all_pinned ? HostTier::kPinned : HostTier::kPageable;
    if (!all_pinned && policy == PinPolicy::kAuto && plan.mode == TransferMode::kH2dOnly) {
      const int64_t bytes = request.model.blocks[block].bytes;
      const bool fits = prediction.pageable_bytes == 0 &&
                        prediction.pinned_bytes + bytes <= limit - candidate.staging_bytes;
      tier = fits ? HostTier::kPinned : HostTier::kPageable;
      (fits ? prediction.pinned_bytes : prediction.pageable_bytes) += bytes;
    }
    plan.blocks[block].tier = tier;
  }
  if (prediction.pageable_bytes > 0 && policy == PinPolicy::kAuto) {
    plan.notes.push_back(absl::StrCat(base::FormatByteSize(prediction.pageable_bytes),
                                      " of host masters stay pageable: only ",
                                      base::FormatByteSize(limit), " may be page-locked"));
  }
  if (prediction.pageable_bytes > 0) prediction.pinned_bytes += candidate.staging_bytes;
  return absl::OkStatus();
}

void BuildSchedules(const PlanRequest& request, const Candidate& candidate, SwapPlan& plan) {
  const int num_blocks = static_cast<int>(request.model.blocks.size());
  const auto build = [&](PassKind kind) {
    if (plan.mode == TransferMode::kExchange && !candidate.streamed.empty()) {
      return ExchangeSchedule(kind, num_blocks, candidate.exchange_lists, request.micro_batches);
    }
    return RingSchedule(kind, num_blocks, candidate.streamed, candidate.ring_size,
                        request.micro_batches);
  };
  plan.training = build(PassKind::kTraining);
  plan.forward_only = build(PassKind::kForwardOnly);
}

void PredictBytes(const PlanRequest& request, const Candidate& candidate, SwapPlan& plan) {
  const ModelProfile& model = request.model;
  Prediction& prediction = plan.prediction;
  prediction.device_bytes = candidate.device_bytes;
  prediction.ring_bytes = candidate.ring_bytes;
  prediction.resident_bytes = candidate.resident_bytes;
  prediction.edge_bytes = model.edge_bytes;
  prediction.adapter_bytes = model.adapter_bytes;
  prediction.optimizer_bytes = model.optimizer_bytes;
  prediction.activation_bytes =
      model.boundary_bytes + model.block_activation_bytes + model.edge_activation_bytes;
  for (const Transfer& transfer : plan.training.transfers) {
    prediction.h2d_bytes_per_step += model.blocks[transfer.load].bytes;
    if (plan.mode == TransferMode::kExchange) {
      prediction.d2h_bytes_per_step += model.blocks[transfer.evict].bytes;
    }
  }
}

// Bytes over the rate of the tier the block waits in; an unknown pageable rate is taken to equal
// the pinned one.
double CopySeconds(int64_t bytes, double rate, double pageable_rate, bool pageable,
                   absl::Duration latency) {
  if (pageable && pageable_rate > 0) rate = std::min(rate, pageable_rate);
  return static_cast<double>(bytes) / rate + absl::ToDoubleSeconds(latency);
}

BlockCosts MakeCosts(const PlanRequest& request, const SwapPlan& plan) {
  const ModelProfile& model = request.model;
  const LinkProfile& link = request.link;
  const double speed = request.compute_flops_per_second;
  const double d2h_rate =
      link.d2h_bytes_per_second > 0 ? link.d2h_bytes_per_second : link.h2d_bytes_per_second;
  double total = 0;
  for (const BlockProfile& block : model.blocks) total += block.forward_flops;
  BlockCosts costs;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const BlockProfile& block = model.blocks[i];
    const double share =
        total > 0 ? block.forward_flops / total : 1.0 / static_cast<double>(model.blocks.size());
    const double forward = speed > 0 ? model.forward_flops * share / speed : 0.0;
    const bool pageable = plan.blocks[i].tier == HostTier::kPageable;
    costs.forward.push_back(forward);
    costs.backward.push_back(forward * model.backward_over_forward);
    costs.h2d.push_back(CopySeconds(block.bytes, link.h2d_bytes_per_second,
                                    link.pageable_bytes_per_second, pageable, link.latency));
    costs.d2h.push_back(
        CopySeconds(block.bytes, d2h_rate, link.pageable_bytes_per_second, pageable, link.latency));
  }
  return costs;
}

void PredictTimes(const PlanRequest& request, SwapPlan& plan) {
  Prediction& prediction = plan.prediction;
  const bool link_known = request.link.h2d_bytes_per_second > 0;
  if (!link_known && !plan.training.transfers.empty()) return;
  PlanRequest known = request;
  if (!link_known) known.link.h2d_bytes_per_second = std::numeric_limits<double>::infinity();
  const BlockCosts costs = MakeCosts(known, plan);
  const CycleTimes times = SimulateCycle(plan.training, PassKind::kTraining, plan.mode, costs);
  prediction.copy = absl::Seconds(times.copy);
  if (request.compute_flops_per_second <= 0) return;
  prediction.compute = absl::Seconds(times.compute);
  prediction.stall = absl::Seconds(times.stall);
  prediction.step = absl::Seconds(times.cycle);
  prediction.bound = absl::Seconds(EvenSpacingBound(plan.training, PassKind::kTraining, costs));
}

absl::StatusOr<SwapPlan> MakePlan(const PlanRequest& request, const Budgets& budgets,
                                  const Candidate& candidate) {
  SwapPlan plan;
  plan.blocks.resize(request.model.blocks.size());
  for (int block : candidate.streamed) plan.blocks[block].residence = Residence::kStreamed;
  plan.slots = candidate.slots;
  plan.slot_bytes = candidate.slot_bytes;
  plan.mode = request.constraints.mode;
  plan.pin_policy = request.constraints.pin_policy;
  plan.blocks_to_swap = candidate.blocks_to_swap;
  plan.vram_budget_bytes = budgets.device_bytes;
  BuildSchedules(request, candidate, plan);
  PredictBytes(request, candidate, plan);
  BLOCKSWAP_RETURN_IF_ERROR(AssignTiers(request, candidate, plan));
  PredictTimes(request, plan);
  BLOCKSWAP_RETURN_IF_ERROR(ValidatePlan(plan, request.model.blocks));
  return plan;
}

}  // namespace

std::vector<int> EvenlySpaced(int count, int streamed) {
  std::vector<int> indices;
  for (int i = 0; i < streamed; ++i) {
    const int64_t numerator = (2 * int64_t{i} + 1) * count;
    indices.push_back(static_cast<int>(numerator / (2 * int64_t{streamed})));
  }
  return indices;
}

absl::StatusOr<SwapPlan> Plan(const PlanRequest& request) {
  BLOCKSWAP_RETURN_IF_ERROR(CheckRequest(request));
  const Budgets budgets = EffectiveBudgets(request);
  const int ring_size = request.constraints.ring_size.value_or(kDefaultRingSize);
  Choice choice = FirstFit(request, budgets, ring_size);
  const bool lowered = !choice.found && ring_size > 1;
  if (lowered) choice = FirstFit(request, budgets, /*ring_size=*/1);
  if (!choice.found) return DoesNotFit(request, budgets);
  BLOCKSWAP_ASSIGN_OR_RETURN(SwapPlan plan, MakePlan(request, budgets, choice.candidate));
  plan.notes.insert(plan.notes.begin(), budgets.notes.begin(), budgets.notes.end());
  if (lowered && plan.mode == TransferMode::kH2dOnly) {
    plan.notes.push_back(absl::StrCat("ring size lowered from ", ring_size,
                                      " to 1: only that fits the budget, copies do not overlap"));
  }
  return plan;
}

}  // namespace blockswap::offload
