// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/alternatives.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "offload/base/byte_size.h"

namespace blockswap::offload {
namespace {

constexpr int64_t kStep = int64_t{2} << 30;
constexpr int64_t kStepsInSmallModel = 8;

std::string Change(const char* what, int64_t before, int64_t after) {
  if (before == after) return "";
  return absl::StrCat(base::FormatByteSize(std::abs(after - before)),
                      after < before ? " less " : " more ", what);
}

// What the other plan needs less or more of than this one.
std::string Difference(const Prediction& before, const Prediction& after) {
  std::vector<std::string> parts;
  const auto add = [&parts](std::string part) {
    if (!part.empty()) parts.push_back(std::move(part));
  };
  add(Change("device memory", before.device_bytes, after.device_bytes));
  add(Change("to the device each step", before.h2d_bytes_per_step, after.h2d_bytes_per_step));
  add(Change("host memory", before.pinned_bytes + before.pageable_bytes,
             after.pinned_bytes + after.pageable_bytes));
  const double old_step = absl::ToDoubleSeconds(before.step);
  const double new_step = absl::ToDoubleSeconds(after.step);
  if (old_step > 0 && new_step > 0) {
    const double percent = 100 * (new_step / old_step - 1);
    if (percent <= -0.05 || percent >= 0.05) {
      add(absl::StrFormat("a step %.1f %% %s", std::abs(percent),
                          percent < 0 ? "shorter" : "longer"));
    } else {
      parts.emplace_back("the same step time");
    }
  }
  return parts.empty() ? "nothing changes" : absl::StrJoin(parts, ", ");
}

Alternative PlanWith(PlanRequest request, int64_t budget, const SwapPlan& plan) {
  Alternative alternative;
  alternative.vram_budget_bytes = budget;
  request.constraints.vram_budget_bytes = budget;
  // What is free now does not matter: the question is what more would do.
  if (request.device_free_bytes > 0) {
    request.device_free_bytes = std::max(request.device_free_bytes, budget);
  }
  request.constraints.blocks_to_swap.reset();
  const absl::StatusOr<SwapPlan> other = Plan(request);
  if (!other.ok()) {
    alternative.saves = "does not fit";
    return alternative;
  }
  alternative.fits = true;
  alternative.device_bytes = other->prediction.device_bytes;
  alternative.blocks_to_swap = other->blocks_to_swap;
  alternative.num_streamed = other->num_streamed();
  alternative.h2d_bytes_per_step = other->prediction.h2d_bytes_per_step;
  alternative.step = other->prediction.step;
  alternative.saves = Difference(plan.prediction, other->prediction);
  return alternative;
}

}  // namespace

std::vector<Alternative> Alternatives(const PlanRequest& request, const SwapPlan& plan) {
  const int64_t taken = plan.prediction.device_bytes;
  const int64_t step = std::min(kStep, std::max<int64_t>(1, taken / kStepsInSmallModel));
  std::vector<Alternative> alternatives = {PlanWith(request, taken - step, plan)};
  Alternative more = PlanWith(request, taken + step, plan);
  const bool same = more.device_bytes == taken && more.num_streamed == plan.num_streamed();
  if (more.fits && !same) alternatives.push_back(std::move(more));
  return alternatives;
}

}  // namespace blockswap::offload
