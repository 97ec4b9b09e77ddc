// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/testing/plan_edits.h"

#include "offload/plan/schedule.h"

namespace blockswap::worker::testing {

void MakeBlockMajor(offload::SwapPlan* plan) {
  plan->block_major = true;
  plan->training =
      offload::RingSchedule(offload::PassKind::kTraining, static_cast<int>(plan->blocks.size()),
                            plan->streamed_blocks(), plan->slots, /*micro_batches=*/1);
}

void MakeWindow(offload::SwapPlan* plan, int slots) {
  const int num_blocks = static_cast<int>(plan->blocks.size());
  const int micro_batches = static_cast<int>(plan->training.visits.size()) / (2 * num_blocks);
  offload::SlotGroup group;
  group.slots = slots;
  for (int block = 0; block < num_blocks; ++block) {
    plan->blocks[static_cast<size_t>(block)].residence = offload::Residence::kStreamed;
    group.blocks.push_back(block);
    if (block % 2 == 1) group.cycling.push_back(block);
  }
  plan->slots = slots;
  plan->slot_sizes.assign(static_cast<size_t>(slots), plan->slot_bytes);
  using offload::PassKind;
  plan->training = offload::GroupSchedule(PassKind::kTraining, num_blocks, {group}, micro_batches);
  plan->forward_only = offload::GroupSchedule(PassKind::kForwardOnly, num_blocks, {group}, 1);
}

void KeepActivations(offload::SwapPlan* plan, int every, bool only_resident) {
  int index = 0;
  for (offload::BlockPlacement& block : plan->blocks) {
    const bool eligible = !only_resident || block.residence == offload::Residence::kResident;
    if (eligible && index++ % every == 0) block.keeps_activations = true;
  }
}

void OffloadBoundaries(offload::SwapPlan* plan, int every) {
  int index = 0;
  for (offload::BlockPlacement& block : plan->blocks) {
    if (!block.keeps_activations && index++ % every == 0) block.offloads_boundary = true;
  }
}

}  // namespace blockswap::worker::testing
