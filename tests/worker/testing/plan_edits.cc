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
