// SPDX-License-Identifier: Apache-2.0
#include "worker/train/plan_history.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"

namespace blockswap::worker {

PlanChange DescribePlan(const offload::SwapPlan& plan, int64_t step, const std::string& reason) {
  PlanChange change;
  change.step = step;
  change.reason = reason;
  change.blocks_to_swap = plan.blocks_to_swap;
  change.slots = plan.slots;
  for (const offload::BlockPlacement& block : plan.blocks) {
    change.blocks_kept += block.keeps_activations ? 1 : 0;
    change.inputs_on_host += block.offloads_boundary ? 1 : 0;
  }
  change.device_bytes = plan.prediction.device_bytes;
  return change;
}

std::string PlanChangeText(const PlanChange& change) {
  std::string text =
      absl::StrCat(change.blocks_to_swap, " blocks swapped over ", change.slots, " slots");
  if (change.blocks_kept > 0) {
    absl::StrAppend(&text, ", ", change.blocks_kept, " keep their activations");
  }
  if (change.inputs_on_host > 0) {
    absl::StrAppend(&text, ", inputs of ", change.inputs_on_host, " wait on the host");
  }
  return absl::StrCat(text, ", planned ", base::FormatByteSize(change.device_bytes));
}

std::string PlanFileText(const offload::SwapPlan& plan, const std::vector<PlanChange>& history) {
  nlohmann::ordered_json file = nlohmann::ordered_json::parse(offload::PlanToJson(plan));
  nlohmann::ordered_json& entries = file["history"] = nlohmann::ordered_json::array();
  for (const PlanChange& change : history) {
    entries.push_back({{"step", change.step},
                       {"reason", change.reason},
                       {"blocks_to_swap", change.blocks_to_swap},
                       {"slots", change.slots},
                       {"blocks_kept", change.blocks_kept},
                       {"inputs_on_host", change.inputs_on_host},
                       {"device_bytes", change.device_bytes}});
  }
  return file.dump(2) + "\n";
}

}  // namespace blockswap::worker
