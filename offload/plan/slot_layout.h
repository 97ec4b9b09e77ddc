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
// spare buffer of each is enough; two let a block go down while another comes up.
struct SlotLayout {
  std::vector<int64_t> capacity_of;  // by block; 0: uses no slot
  std::vector<int64_t>
      slots;  // capacity of each; exchange: slot i starts with the i-th block on the device
  std::vector<int64_t>
      host_buffers;  // masters in block order, then the spare buffers of exchange mode

  int64_t slot_bytes() const;  // of all slots together
  int64_t host_bytes() const;
};

// Pinned buffers that pageable masters pass through on a device that copies from pinned memory
// only. More than a few never wait for each other: there is one copy lane.
inline constexpr int kMostStagingBuffers = 4;
inline constexpr int kExchangeStagingBuffers = 2;
inline constexpr int kLayerStagingBuffers = 2;  // one is filled while the other is copied
int NumStagingBuffers(const SwapPlan& plan);

// Bytes of the slots that a streamed block of this size goes into: the smallest that hold it.
int64_t SlotBytesFor(const SwapPlan& plan, int64_t block_bytes);

// H2D only: the slots are plan.slot_sizes, or all plan.slot_bytes; masters have their blocks' own
// size. Exchange: when the model has a few sizes of block (two lists) and the schedules exchange
// blocks of one size only, each size has slots of its own; else all are plan.slot_bytes.
SlotLayout LayoutSlots(const SwapPlan& plan, const std::vector<BlockProfile>& blocks);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_SLOT_LAYOUT_H_
