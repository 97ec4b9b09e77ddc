// SPDX-License-Identifier: Apache-2.0
// How large each device slot and each host buffer of a plan is, and which blocks may use which.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_SLOT_LAYOUT_H_
#define BLOCKSWAP_OFFLOAD_PLAN_SLOT_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "offload/plan/block_profile.h"
#include "offload/plan/swap_plan.h"

namespace blockswap::offload {

// A block goes into slots of exactly its capacity and, in exchange mode, into host buffers of
// exactly that size. So the number of blocks of each capacity that are away never changes, and one
// spare buffer of each is enough.
struct SlotLayout {
  std::vector<int64_t> capacity_of;  // by block; 0: uses no slot
  std::vector<int64_t>
      slots;  // capacity of each; exchange: slot i starts with the i-th block on the device
  std::vector<int64_t>
      host_buffers;  // masters in block order, then the spare buffers of exchange mode

  int64_t slot_bytes() const;  // of all slots together
  int64_t host_bytes() const;
};

// H2D only: all slots have plan.slot_bytes, masters their blocks' own size. Exchange: when the
// model has a few sizes of block (two lists) and the schedules exchange blocks of one size only,
// each size has slots of its own; else all are plan.slot_bytes.
SlotLayout LayoutSlots(const SwapPlan& plan, const std::vector<BlockProfile>& blocks);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_SLOT_LAYOUT_H_
