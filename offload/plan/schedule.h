// SPDX-License-Identifier: Apache-2.0
// Builds the transfer schedules of a plan: which block comes in after which visit, and which one it
// replaces.
//
// Note [Transfer schedules]
// Ring, training: when the streamed block of rank j is released in the forward pass, rank j+R takes
// its slot; in the backward pass rank j-R does. The last R ranks of the forward pass are the first
// R of the backward pass and the other way round at the step boundary, so nothing is flushed and a
// step costs 2S-2R loads, the minimum for R slots. Ring, forward only: after the last rank the pass
// starts again at rank 0, so every rank is loaded once per pass. Exchange: all device slots belong
// to the swap. Block i leaves when it is released and the block that is N-S (the number of slots)
// visits ahead comes into its place: i+(N-S) forward, i-(N-S) backward. A training step exchanges
// 2S times; a forward-only pass 2S times when S < N/2 (it swaps back at the tail) and N times,
// wrapping round, otherwise.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_SCHEDULE_H_
#define BLOCKSWAP_OFFLOAD_PLAN_SCHEDULE_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "offload/plan/swap_plan.h"

namespace blockswap::offload {

// One list of blocks that exchange among themselves.
struct ExchangeList {
  int first = 0;  // index of its first block
  int count = 0;
  int streamed =
      0;  // blocks away at the start of a cycle: the last `streamed` of the list; < count
};

// Streamed blocks that share device slots of one size.
struct SlotGroup {
  std::vector<int> blocks;   // ascending
  int slots = 0;             // from 1 to the number of blocks
  std::vector<int> cycling;  // those that a forward-only pass moves, ascending; the others stay in
                             // their slots from its first visit to its last
  // Training: those that give up their slot after their forward visit, and after their backward
  // one, ascending. Both empty: as in a ring.
  std::vector<int> leave_forward = {};
  std::vector<int> leave_backward = {};
  bool operator==(const SlotGroup&) const = default;
};

// Blocks in visiting order: a training step repeats 0..N-1, N-1..0 for each micro-batch, a
// forward-only pass is 0..N-1.
std::vector<int> Visits(PassKind kind, int num_blocks, int micro_batches);

// REQUIRES: `streamed` ascending; 1 <= ring_size <= streamed.size() unless `streamed` is empty.
TransferSchedule RingSchedule(PassKind kind, int num_blocks, const std::vector<int>& streamed,
                              int ring_size, int micro_batches);

// A training cycle in which the named blocks of `group` give up their slots, each to the absent
// block that is needed next. nullopt where that leaves a block absent at one of its visits. Of one
// micro-batch. REQUIRES: fewer slots than blocks.
std::optional<TransferSchedule> LeavingSchedule(int num_blocks, const SlotGroup& group);

// `once`, a training cycle of one micro-batch, for each of them.
TransferSchedule RepeatSchedule(const TransferSchedule& once, int micro_batches);

// `schedule`, a training cycle, with transfer `index` made only after the `later` ones behind it:
// they get the lane first. nullopt where its block would come too late, or nothing is behind it.
std::optional<TransferSchedule> DelayTransfer(const TransferSchedule& schedule, size_t index,
                                              size_t later);

// `schedule`, a training cycle, with the loads of two transfers changed over. What is on the device
// when a cycle starts may change with them. nullopt where a block would come too late.
std::optional<TransferSchedule> SwapLoads(const TransferSchedule& schedule, size_t index,
                                          size_t other);

// Every group runs a ring of its own over one copy lane. With as many slots as all blocks less
// those that are away, the ring of a training step is a window that slides over the whole group.
// REQUIRES: groups disjoint; more slots than blocks that do not cycle, where any do; where blocks
// are named to leave, LeavingSchedule can do it.
TransferSchedule GroupSchedule(PassKind kind, int num_blocks, const std::vector<SlotGroup>& groups,
                               int micro_batches);

// REQUIRES: lists disjoint and ascending. Blocks outside the lists never move.
TransferSchedule ExchangeSchedule(PassKind kind, int num_blocks,
                                  const std::vector<ExchangeList>& lists, int micro_batches);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_SCHEDULE_H_
