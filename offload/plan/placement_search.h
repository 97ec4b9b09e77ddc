// SPDX-License-Identifier: Apache-2.0
// Finds the placement and schedules of least simulated step time within the budgets.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_PLACEMENT_SEARCH_H_
#define BLOCKSWAP_OFFLOAD_PLAN_PLACEMENT_SEARCH_H_

#include <optional>
#include <vector>

#include "offload/plan/candidate.h"
#include "offload/plan/group_builder.h"
#include "offload/plan/refusal.h"
#include "offload/plan/step_model.h"

namespace blockswap::offload {

// A placement that fits, with the time of all visits of one step.
struct TimedPlacement {
  Candidate candidate;
  double step_seconds = 0;
  double compute_seconds = 0;
  int ring_size = kDefaultRingSize;  // it was built from; kWindow: one window
  int division = 0;                  // of the blocks, by index
};

// A wider ring or a window needs more masters than a ring of two; it is chosen for more than this.
inline constexpr double kWorthwhileGain = 0.01;

// Note [Placement search]
// For each division of the blocks into slots of one size, each number of blocks away that just
// fits, and each width of ring, the step is simulated. The best ones are improved by moving single
// blocks. For alike blocks the window is the best schedule there is: it loads as few blocks as
// possible, each at the first opportunity and of all the one needed next, over the one not needed
// for longest.
//
// Thread safety: none. Pure: the same request gives the same placement.
class PlacementSearch {
 public:
  // REQUIRES: SpeedsAreKnown(request), no exchange. All are outlived by the caller's.
  PlacementSearch(const PlanRequest& request, const Budgets& budgets,
                  const ActivationChoice& activations);

  // Any set of blocks, any width of ring (or `ring_size` alone). `plain`: one that fits, if any is
  // known; what is found is no slower. nullopt: nothing fits.
  std::optional<TimedPlacement> Find(std::optional<int> ring_size, const Candidate* plain);

  // `candidate` with its streamed blocks moved within their lists, to where the step is least.
  TimedPlacement Improve(const Candidate& candidate);

 private:
  // nullopt: does not fit.
  std::optional<TimedPlacement> Time(std::vector<SlotGroup> groups);
  double Repeats() const;  // of the visits, in one step
  void TryAway(const Division& division, size_t set, std::vector<SlotGroup>& groups);
  void Keep(TimedPlacement placement);
  // Changes single blocks, and slots unless their number `is_fixed`, while that helps.
  // `within_lists`: swaps within a list alone.
  void MoveBlocks(TimedPlacement& placement, bool is_fixed, bool within_lists);
  // True when the changed placement is faster; it is then taken.
  bool Accept(std::vector<SlotGroup> groups, TimedPlacement& placement);
  // One slot or one block more or less.
  bool ResizeOne(TimedPlacement& placement, size_t group);
  // For a few blocks: every way there is, where that is faster than all that was found.
  void TryEverything();
  // Lets transfers wait for others that are needed sooner; of a few blocks, changes what they load.
  void ReorderLoads(TimedPlacement& placement);
  bool MoveOne(TimedPlacement& placement, size_t group, size_t index, bool within_lists);
  const TimedPlacement& Choose() const;

  const PlanRequest& request_;
  const Budgets& budgets_;
  const ActivationChoice activations_;
  const TimeLine time_;
  const std::vector<BlockList> lists_;
  std::vector<TimedPlacement> found_;  // the fastest of each division and ring size
  int division_ = 0, ring_size_ = 0;   // that are being tried
  const int most_simulations_;
  int simulations_left_;
  bool tried_everything_ = false;
};

// Chooses which blocks of each group a forward-only pass moves. A pass that always runs the same
// way gains from fixed blocks, a step that turns round does not.
void ChooseForwardOnly(const PlanRequest& request, const BlockCosts& costs, Candidate& candidate);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_PLACEMENT_SEARCH_H_
