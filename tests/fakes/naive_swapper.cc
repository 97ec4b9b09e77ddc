// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/naive_swapper.h"

namespace blockswap::offload {

NaiveCycle RunByHand(const SwapPlan& plan, const TransferSchedule& schedule) {
  NaiveCycle cycle;
  std::set<int> in_slots(schedule.initial.begin(), schedule.initial.end());
  for (int visit = 0; visit < static_cast<int>(schedule.visits.size()); ++visit) {
    const int block = schedule.visits[static_cast<size_t>(visit)];
    const bool uses_slot =
        plan.mode == TransferMode::kExchange
            ? plan.slots > 0
            : plan.blocks[static_cast<size_t>(block)].residence == Residence::kStreamed;
    if (uses_slot && in_slots.count(block) == 0) ++cycle.absent;
    for (const Transfer& transfer : schedule.transfers) {
      if (transfer.after_visit != visit) continue;
      if (in_slots.erase(transfer.evict) == 0) ++cycle.impossible;
      if (!in_slots.insert(transfer.load).second) ++cycle.impossible;
      ++cycle.loads;
      if (static_cast<int>(in_slots.size()) > plan.slots) cycle.overflowed = true;
    }
  }
  cycle.final_blocks = in_slots;
  return cycle;
}

}  // namespace blockswap::offload
