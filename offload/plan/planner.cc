// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/planner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "offload/plan/block_costs.h"
#include "offload/plan/candidate.h"
#include "offload/plan/host_tiers.h"
#include "offload/plan/kept_activations.h"
#include "offload/plan/layer_schedule.h"
#include "offload/plan/placement_search.h"
#include "offload/plan/prediction.h"
#include "offload/plan/refusal.h"
#include "offload/plan/schedule.h"
#include "offload/plan/shortfall.h"

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
  const int maximum = MaxBlocksToSwap(request);
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

// Settings that cannot both be had, each answer with both of them.
absl::Status CheckContradictions(const PlanRequest& request) {
  const MemoryConstraints& constraints = request.constraints;
  if (request.base_trains && constraints.mode == TransferMode::kH2dOnly) {
    return absl::InvalidArgumentError(
        "memory.mode h2d_only needs a frozen base, and network.type none trains it; set "
        "memory.mode: exchange");
  }
  if (StreamsLayers(request) && (request.base_trains || Exchanges(request))) {
    return absl::InvalidArgumentError(
        absl::StrCat("granularity layer streams a frozen base in mode h2d_only, and ",
                     request.base_trains ? "network.type none trains it" : "mode is exchange",
                     "; set granularity: block or memory.mode: h2d_only with an adapter"));
  }
  const int asked = constraints.blocks_to_swap.value_or(0);
  if (constraints.checkpointing == Toggle::kOff && asked > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpointing off keeps the activations of every block, which only resident blocks can, "
        "and blocks_to_swap is ",
        asked, "; set blocks_to_swap: 0 or checkpointing: auto"));
  }
  if (constraints.checkpointing == Toggle::kOff && constraints.activation_offload == Toggle::kOn) {
    return absl::InvalidArgumentError(
        "checkpointing off saves no block inputs, so activation_offload on has none to move; set "
        "checkpointing: auto or activation_offload: auto");
  }
  return absl::OkStatus();
}

struct Decision {
  Candidate candidate;
  double step_seconds = 0;  // 0: unknown
  bool ring_lowered = false;
};

// The smallest number of streamed blocks that fits: every byte that is left over goes to residents.
std::optional<Decision> FirstFit(const PlanRequest& request, const Budgets& budgets,
                                 const ActivationChoice& activations) {
  const MemoryConstraints& constraints = request.constraints;
  const int first = constraints.blocks_to_swap.value_or(0);
  const int last = constraints.blocks_to_swap.value_or(MaxBlocksToSwap(request));
  const int wanted = constraints.ring_size.value_or(kDefaultRingSize);
  for (const int ring_size : {wanted, 1}) {
    for (int blocks_to_swap = first; blocks_to_swap <= last; ++blocks_to_swap) {
      Candidate candidate = MakeCandidate(request, blocks_to_swap, ring_size, activations);
      if (!Fits(candidate, budgets)) continue;
      return Decision{std::move(candidate), 0, ring_size < wanted};
    }
  }
  return std::nullopt;
}

// The user's number whose plain ring takes about the same device memory.
int EquivalentBlocksToSwap(const PlanRequest& request, const Candidate& candidate) {
  const int maximum = MaxBlocksToSwap(request);
  const int64_t weights = candidate.resident_bytes + candidate.ring_bytes;
  for (int blocks_to_swap = 0; blocks_to_swap < maximum; ++blocks_to_swap) {
    const Candidate plain = MakeCandidate(request, blocks_to_swap, kDefaultRingSize);
    if (plain.resident_bytes + plain.ring_bytes <= weights) return blocks_to_swap;
  }
  return maximum;
}

// Where the steps can be timed: the fastest placement. A fixed number of blocks is only moved.
std::optional<Decision> Fastest(const PlanRequest& request, const Budgets& budgets,
                                const ActivationChoice& activations) {
  const MemoryConstraints& constraints = request.constraints;
  PlacementSearch search(request, budgets, activations);
  std::optional<Decision> decision = FirstFit(request, budgets, activations);
  if (!constraints.blocks_to_swap.has_value()) {
    std::optional<TimedPlacement> found =
        search.Find(constraints.ring_size, decision.has_value() ? &decision->candidate : nullptr);
    // A plain ring that fits and was not taken is one that cannot be locked as required: its own
    // refusal says so.
    if (!found.has_value()) return decision;
    found->candidate.blocks_to_swap = EquivalentBlocksToSwap(request, found->candidate);
    const bool lowered = constraints.ring_size.value_or(1) > 1 && found->ring_size == 1;
    return Decision{std::move(found->candidate), found->step_seconds, lowered};
  }
  if (!decision.has_value()) return std::nullopt;
  TimedPlacement improved = search.Improve(decision->candidate);
  decision->candidate = std::move(improved.candidate);
  decision->step_seconds = improved.step_seconds;
  return decision;
}

std::optional<Decision> Decide(const PlanRequest& request, const Budgets& budgets,
                               const ActivationChoice& activations) {
  if (!Exchanges(request) && !StreamsLayers(request) && SpeedsAreKnown(request)) {
    return Fastest(request, budgets, activations);
  }
  std::optional<Decision> decision = FirstFit(request, budgets, activations);
  if (decision.has_value() && !Exchanges(request)) {
    KeepActivations(request, budgets, decision->candidate);
  }
  return decision;
}

// Micro-batches together in each block where that gains time: it needs their inputs all at once.
void TryBlockMajor(const PlanRequest& request, const Budgets& budgets, ActivationChoice activations,
                   std::optional<Decision>& decision) {
  if (request.micro_batches == 1 || request.base_trains || Exchanges(request) ||
      StreamsLayers(request) || !SpeedsAreKnown(request)) {
    return;
  }
  activations.block_major = true;
  std::optional<Decision> together = Decide(request, budgets, activations);
  if (!together.has_value()) return;
  if (!decision.has_value() ||
      together->step_seconds * (1 + kWorthwhileGain) < decision->step_seconds) {
    decision = std::move(together);
  }
}

// The inputs of as few blocks as make it fit wait on the host, or of all where that is faster.
std::optional<Decision> OffloadInputs(const PlanRequest& request, const Budgets& budgets,
                                      ActivationChoice& activations) {
  const int num_blocks = static_cast<int>(request.model.blocks.size());
  activations.num_offloaded = num_blocks;
  if (!FirstFit(request, budgets, activations).has_value()) return std::nullopt;
  int too_few = 0;
  while (activations.num_offloaded - too_few > 1) {
    const int middle = (activations.num_offloaded + too_few) / 2;
    ActivationChoice fewer = activations;
    fewer.num_offloaded = middle;
    (FirstFit(request, budgets, fewer).has_value() ? activations.num_offloaded : too_few) = middle;
  }
  std::optional<Decision> fewest = Decide(request, budgets, activations);
  ActivationChoice all = activations;
  all.num_offloaded = num_blocks;
  std::optional<Decision> most = Decide(request, budgets, all);
  // More inputs on the host leave room for resident blocks.
  if (!fewest.has_value() || !most.has_value() ||
      most->step_seconds * (1 + kWorthwhileGain) >= fewest->step_seconds) {
    return fewest;
  }
  activations = all;
  return most;
}

void BuildSchedules(const PlanRequest& request, const Candidate& candidate, SwapPlan& plan) {
  const int num_blocks = static_cast<int>(candidate.num_blocks);
  const int repeats = candidate.activations.block_major ? 1 : request.micro_batches;
  const auto build = [&](PassKind kind) {
    if (plan.exchanges() && !candidate.streamed.empty()) {
      return ExchangeSchedule(kind, num_blocks, candidate.exchange_lists, repeats);
    }
    return GroupSchedule(kind, num_blocks, candidate.groups, repeats);
  };
  plan.training = candidate.training.visits.empty() ? build(PassKind::kTraining)
                                                    : RepeatSchedule(candidate.training, repeats);
  plan.forward_only = build(PassKind::kForwardOnly);
}

absl::Status CheckLayers(const PlanRequest& request, const Candidate& candidate) {
  for (const int block : candidate.streamed) {
    if (!request.model.blocks[static_cast<size_t>(block)].layers.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("granularity layer is not available for this model: block ",
                     request.model.blocks[static_cast<size_t>(block)].name,
                     " does not name its linears; set granularity: block"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SwapPlan> MakePlan(const PlanRequest& request, const Budgets& budgets,
                                  Candidate candidate) {
  BLOCKSWAP_RETURN_IF_ERROR(CheckPinning(request, candidate));
  const HostTiers tiers = AssignTiers(request, budgets, candidate);
  if (!Exchanges(request) && !StreamsLayers(request) && SpeedsAreKnown(request)) {
    ActivationChoice forward = candidate.activations;
    forward.block_major = false;
    ChooseForwardOnly(request, MakeCosts(request, tiers.tier_of, forward), candidate);
  }
  SwapPlan plan;
  plan.blocks.resize(candidate.num_blocks);
  for (const int block : candidate.streamed) {
    plan.blocks[static_cast<size_t>(block)].residence = Residence::kStreamed;
  }
  for (size_t block = 0; block < candidate.num_blocks; ++block) {
    plan.blocks[block].tier = tiers.tier_of[block];
    plan.blocks[block].keeps_activations = candidate.activations.Keeps(static_cast<int>(block));
    plan.blocks[block].offloads_boundary =
        static_cast<int>(block) < candidate.activations.num_offloaded;
  }
  plan.slots = candidate.slots;
  plan.slot_bytes = candidate.slot_bytes;
  plan.slot_sizes = candidate.slot_sizes;
  plan.mode = request.constraints.mode;
  plan.base_trains = request.base_trains;
  plan.block_major = candidate.activations.block_major;
  plan.pin_policy = request.constraints.pin_policy;
  plan.blocks_to_swap = candidate.blocks_to_swap;
  plan.vram_budget_bytes = budgets.device_bytes;
  plan.notes = budgets.notes;
  plan.granularity = request.constraints.granularity;
  BuildSchedules(request, candidate, plan);
  if (StreamsLayers(request) && !candidate.streamed.empty()) {
    BLOCKSWAP_RETURN_IF_ERROR(CheckLayers(request, candidate));
    plan.window = PlanLayerWindow(MakeLayerRequest(request, candidate, tiers, plan));
  }
  PredictBytes(request, candidate, tiers, plan);
  PredictTimes(request, candidate, tiers, plan);
  ExplainPlan(request, budgets, candidate, tiers, plan);
  BLOCKSWAP_RETURN_IF_ERROR(ValidatePlan(plan, request.model.blocks));
  return plan;
}

// No block may stream and all keep their activations.
absl::StatusOr<SwapPlan> PlanWithoutCheckpointing(const PlanRequest& request,
                                                  const Budgets& budgets) {
  ActivationChoice activations;
  activations.keeps.assign(request.model.blocks.size(), true);
  Candidate candidate = MakeCandidate(request, 0, kDefaultRingSize, activations);
  if (Fits(candidate, budgets)) return MakePlan(request, budgets, std::move(candidate));
  const std::string would_fit =
      absl::StrCat("checkpointing auto, or vram_budget ", candidate.device_bytes);
  return WithShortfall(
      absl::FailedPreconditionError(absl::StrCat(
          "vram_budget too small for checkpointing off: needed ",
          base::FormatByteSize(candidate.device_bytes), " (", candidate.device_bytes,
          " bytes) with every block resident and keeping its activations, available ",
          base::FormatByteSize(budgets.device_bytes), " (", budgets.device_bytes,
          " bytes); would fit: ", would_fit)),
      {"device_memory", candidate.device_bytes, budgets.device_bytes, would_fit});
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
  BLOCKSWAP_RETURN_IF_ERROR(CheckContradictions(request));
  const Budgets budgets = EffectiveBudgets(request);
  const MemoryConstraints& constraints = request.constraints;
  if (constraints.checkpointing == Toggle::kOff) return PlanWithoutCheckpointing(request, budgets);
  ActivationChoice activations;
  if (constraints.activation_offload == Toggle::kOn) {
    activations.num_offloaded = static_cast<int>(request.model.blocks.size());
  }
  std::optional<Decision> decision = Decide(request, budgets, activations);
  if (!decision.has_value() && request.may_offload_inputs &&
      constraints.activation_offload == Toggle::kAuto) {
    decision = OffloadInputs(request, budgets, activations);
  }
  TryBlockMajor(request, budgets, activations, decision);
  if (!decision.has_value()) return DoesNotFit(request, budgets, activations);
  BLOCKSWAP_ASSIGN_OR_RETURN(SwapPlan plan, MakePlan(request, budgets, decision->candidate));
  if (decision->ring_lowered && !plan.exchanges()) {
    plan.notes.push_back(absl::StrCat("ring size lowered from ",
                                      constraints.ring_size.value_or(kDefaultRingSize),
                                      " to 1: only that fits the budget, copies do not overlap"));
  }
  return plan;
}

}  // namespace blockswap::offload
