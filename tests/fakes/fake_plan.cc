// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_plan.h"

#include <algorithm>

#include "offload/plan/layer_schedule.h"
#include "offload/plan/planner.h"
#include "offload/plan/schedule.h"

namespace blockswap::offload {

SwapPlan MakeRingPlan(const std::vector<BlockProfile>& blocks, const std::vector<int>& streamed,
                      int ring_size, PinPolicy policy) {
  const int num_blocks = static_cast<int>(blocks.size());
  SwapPlan plan;
  plan.blocks.resize(blocks.size());
  plan.pin_policy = policy;
  plan.blocks_to_swap = static_cast<int>(streamed.size());
  plan.slots = std::min(ring_size, plan.blocks_to_swap);
  for (int block : streamed) {
    plan.blocks[static_cast<size_t>(block)].residence = Residence::kStreamed;
    plan.slot_bytes = std::max(plan.slot_bytes, blocks[static_cast<size_t>(block)].bytes);
  }
  for (int block = 0; block < num_blocks; ++block) {
    if (plan.blocks[static_cast<size_t>(block)].residence == Residence::kResident) {
      plan.prediction.resident_bytes += blocks[static_cast<size_t>(block)].bytes;
    }
  }
  plan.prediction.ring_bytes = plan.slots * plan.slot_bytes;
  plan.training = RingSchedule(PassKind::kTraining, num_blocks, streamed, plan.slots, 1);
  plan.forward_only = RingSchedule(PassKind::kForwardOnly, num_blocks, streamed, plan.slots, 1);
  return plan;
}

SwapPlan MakeEvenRingPlan(const std::vector<BlockProfile>& blocks, int num_streamed, int ring_size,
                          PinPolicy policy) {
  return MakeRingPlan(blocks, EvenlySpaced(static_cast<int>(blocks.size()), num_streamed),
                      ring_size, policy);
}

SwapPlan MakeLayerPlan(const std::vector<BlockProfile>& blocks, const std::vector<int>& streamed,
                       PinPolicy policy) {
  SwapPlan plan = MakeRingPlan(blocks, streamed, /*ring_size=*/1, policy);
  plan.granularity = Granularity::kLayer;
  plan.slots = 0;
  plan.slot_bytes = 0;
  for (TransferSchedule* schedule : {&plan.training, &plan.forward_only}) {
    schedule->transfers.clear();
    schedule->initial.clear();
  }
  plan.window = PlanLayerWindow({.blocks = &blocks,
                                 .streamed = streamed,
                                 .training_visits = plan.training.visits,
                                 .forward_only_visits = plan.forward_only.visits,
                                 .costs = {}});
  plan.prediction.ring_bytes = plan.window.bytes;
  for (int block : streamed) {
    plan.prediction.resident_bytes += LayoutRest(blocks[static_cast<size_t>(block)]).bytes;
  }
  return plan;
}

}  // namespace blockswap::offload
