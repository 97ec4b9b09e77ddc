// SPDX-License-Identifier: Apache-2.0
// plan.json: the plan a job runs under, and every plan it had before.
#ifndef BLOCKSWAP_WORKER_TRAIN_PLAN_HISTORY_H_
#define BLOCKSWAP_WORKER_TRAIN_PLAN_HISTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "offload/plan/swap_plan.h"

namespace blockswap::worker {

// What changed with a plan, in numbers.
struct PlanChange {
  int64_t step = 0;    // the last completed one
  std::string reason;  // UPPER_SNAKE
  int blocks_to_swap = 0, slots = 0, blocks_kept = 0, inputs_on_host = 0;
  int64_t device_bytes = 0;
};
PlanChange DescribePlan(const offload::SwapPlan& plan, int64_t step, const std::string& reason);

// "4 blocks swapped over 2 slots, 1 block keeps its activations, 12.0 MiB": for logs.
std::string PlanChangeText(const PlanChange& change);

// PlanToJson(plan) with `history`, oldest first; the last entry is `plan` itself.
std::string PlanFileText(const offload::SwapPlan& plan, const std::vector<PlanChange>& history);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_PLAN_HISTORY_H_
