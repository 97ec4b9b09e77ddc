// SPDX-License-Identifier: Apache-2.0
#include "worker/train/elastic_planner.h"

#include <algorithm>
#include <limits>

#include "absl/time/time.h"

namespace blockswap::worker {
namespace {

using offload::BlockPlacement;
using offload::PlanRequest;
using offload::SwapPlan;
using offload::Toggle;

// Predictions promise 1 %; a page of rounding is nobody's fault.
constexpr double kPeakTolerance = 1.01;
constexpr int64_t kPeakSlackBytes = 64 << 10;
// Below this the placement would hardly change, and measurements differ by as much.
constexpr double kSpeedTolerance = 1.10;
constexpr int kRelaxations = 4;

bool SameBlock(const BlockPlacement& left, const BlockPlacement& right) {
  // The tier of a master changes nothing that a step can see.
  return left.residence == right.residence && left.keeps_activations == right.keeps_activations &&
         left.offloads_boundary == right.offloads_boundary;
}

// What the user fixed gives way last, and in this order.
void Relax(int level, offload::MemoryConstraints* constraints) {
  if (level >= 1) {
    constraints->blocks_to_swap.reset();
    constraints->checkpointing =
        constraints->checkpointing == Toggle::kOff ? Toggle::kAuto : constraints->checkpointing;
  }
  if (level >= 2) constraints->activation_offload = Toggle::kAuto;
  if (level >= 3) constraints->granularity = offload::Granularity::kLayer;
}

int64_t SmallestBlock(const offload::ModelProfile& model) {
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (const offload::BlockProfile& block : model.blocks) {
    smallest = std::min(smallest, block.bytes);
  }
  return smallest;
}

}  // namespace

bool SamePlacement(const SwapPlan& left, const SwapPlan& right) {
  return std::equal(left.blocks.begin(), left.blocks.end(), right.blocks.begin(),
                    right.blocks.end(), SameBlock) &&
         left.slots == right.slots && left.slot_bytes == right.slot_bytes &&
         left.slot_sizes == right.slot_sizes && left.mode == right.mode &&
         left.granularity == right.granularity && left.block_major == right.block_major &&
         left.training == right.training && left.forward_only == right.forward_only;
}

bool ElasticPlanner::LearnPeak(int64_t predicted_bytes, int64_t measured_bytes) {
  const double promised = static_cast<double>(predicted_bytes) * kPeakTolerance;
  if (measured_bytes <= static_cast<int64_t>(promised) + kPeakSlackBytes) return false;
  extra_activation_bytes_ += measured_bytes - predicted_bytes;
  return true;
}

bool ElasticPlanner::LearnCompute(absl::Duration predicted, absl::Duration measured) {
  if (predicted <= absl::ZeroDuration() || measured <= absl::ZeroDuration()) return false;
  const double ratio = absl::FDivDuration(predicted, measured);
  machine_.compute_flops_per_second *= ratio;
  return ratio > kSpeedTolerance || ratio < 1 / kSpeedTolerance;
}

PlanRequest ElasticPlanner::Request() const {
  PlanRequest request = MakePlanRequest(*job_, machine_);
  request.model.block_activation_bytes += extra_activation_bytes_;
  if (request.model.last_block_activation_bytes > 0) {
    request.model.last_block_activation_bytes += extra_activation_bytes_;
  }
  request.model.edge_activation_bytes += extra_activation_bytes_;
  Relax(relaxation_, &request.constraints);
  if (limit_bytes_.has_value()) {
    std::optional<int64_t>& budget = request.constraints.vram_budget_bytes;
    budget = std::min(budget.value_or(*limit_bytes_), *limit_bytes_);
  }
  return request;
}

absl::StatusOr<SwapPlan> ElasticPlanner::Make() const { return offload::Plan(Request()); }

absl::StatusOr<SwapPlan> ElasticPlanner::MakeWithin(int64_t vram_budget_bytes) const {
  PlanRequest request = Request();
  request.constraints.vram_budget_bytes = vram_budget_bytes;
  request.constraints.blocks_to_swap.reset();
  return offload::Plan(request);
}

absl::StatusOr<SwapPlan> ElasticPlanner::MakeSmaller(const SwapPlan& plan, int tries) {
  const int64_t now = plan.prediction.device_bytes;
  const int64_t free = machine_.device_free_bytes;
  const int64_t most = free > 0 ? std::min(now - 1, free) : now - 1;
  // One byte less, then one block, three, seven: a long way down takes few tries.
  const int64_t drop = SmallestBlock(job_->profile) * ((int64_t{1} << std::min(tries, 20)) - 1);
  // A peak may have been somebody else's. From here on the limit says what is there, and every plan
  // is measured by the same prediction.
  extra_activation_bytes_ = 0;
  const std::optional<int64_t> old_limit = limit_bytes_;
  const int old_relaxation = relaxation_;
  absl::Status refusal = absl::ResourceExhaustedError("a plan of no bytes does not exist");
  for (; relaxation_ < kRelaxations; ++relaxation_) {
    for (const int64_t target : {std::min(most, now - drop), most}) {
      if (target <= 0) continue;
      limit_bytes_ = target;
      absl::StatusOr<SwapPlan> smaller = offload::Plan(Request());
      if (smaller.ok()) return smaller;
      refusal = smaller.status();
    }
  }
  limit_bytes_ = old_limit;
  relaxation_ = old_relaxation;
  return refusal;
}

}  // namespace blockswap::worker
