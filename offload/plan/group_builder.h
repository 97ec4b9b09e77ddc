// SPDX-License-Identifier: Apache-2.0
// Chooses which blocks of a set stream for a wanted number of them to be away.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_GROUP_BUILDER_H_
#define BLOCKSWAP_OFFLOAD_PLAN_GROUP_BUILDER_H_

#include <optional>
#include <vector>

#include "offload/plan/planner.h"
#include "offload/plan/schedule.h"

namespace blockswap::offload {

// Where the blocks are on the time line of one forward.
class TimeLine {
 public:
  explicit TimeLine(const ModelProfile& model);

  // `count` of `members` (ascending), evenly spaced by time between the first and the last of them:
  // for alike blocks the midpoint formula of EvenlySpaced.
  std::vector<int> EvenlySpacedOf(const std::vector<int>& members, int count) const;

 private:
  std::vector<double> ends_;  // of each block, from 0
};

// The blocks that may share slots, as one way to divide the model: each set by itself, ascending.
using Division = std::vector<std::vector<int>>;

// All blocks in slots of one size; and, where their sizes differ, slots by size: each size apart
// for up to three sizes, in two classes for some more.
std::vector<Division> Divisions(const ModelProfile& model);

// How many of `members` may be away at a time: what their lists allow, and never all.
int MostAway(const ModelProfile& model, const std::vector<int>& members);

// Rings of `ring_size` slots with evenly spaced blocks, or (kWindow) as many slots as the memory of
// the blocks that are not away makes.
inline constexpr int kWindow = 0;

// nullopt when nothing is to be away.
std::optional<SlotGroup> BuildGroup(const TimeLine& time, const std::vector<int>& members, int away,
                                    int ring_size);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_GROUP_BUILDER_H_
