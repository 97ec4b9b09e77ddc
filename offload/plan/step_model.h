// SPDX-License-Identifier: Apache-2.0
// How long one cycle of a transfer schedule takes, by event simulation, and the bounds it is
// measured against.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_STEP_MODEL_H_
#define BLOCKSWAP_OFFLOAD_PLAN_STEP_MODEL_H_

#include <cstdint>
#include <vector>

#include "offload/plan/swap_plan.h"

namespace blockswap::offload {

// Seconds per block, indexed by block. Backward includes the recompute. Device-to-host is read in
// exchange mode only.
struct BlockCosts {
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> h2d;
  std::vector<double> d2h;
  // Saved inputs that wait on the host: down after the forward visit, back one visit ahead of the
  // backward one. Empty: they stay on the device.
  std::vector<double> boundary_h2d = {};
  std::vector<double> boundary_d2h = {};
  // Exchange mode: by block, the size of the host buffers it goes down to, and the sizes of those
  // that are spare. Empty: there is always a free one.
  std::vector<int64_t> host_buffer = {};
  std::vector<int64_t> spare_buffers = {};
};

struct CycleTimes {
  double cycle = 0;    // steady state: what one more cycle adds
  double compute = 0;  // of one cycle, without waiting
  double copy = 0;     // host-to-device lane busy, one cycle
  double stall = 0;    // cycle - compute
};

// Whether each visit of a schedule computes backward: in a training cycle every second visit of a
// block does.
std::vector<bool> BackwardVisits(const TransferSchedule& schedule, PassKind kind, int num_blocks);

// Runs `schedule` with one compute lane and one copy lane per direction. A transfer starts when its
// visit has ended, and what it replaces has been written back (exchange), to a spare host buffer
// that has been read by then; a visit starts when its block's load has ended.
CycleTimes SimulateCycle(const TransferSchedule& schedule, PassKind kind, TransferMode mode,
                         const BlockCosts& costs);

// facts/offload.md 5.2, "small ring": max(F, L) + max(Q, L'), F and Q all forward and all backward
// compute, L and L' the loads of each phase. No placement of residents with this ring can be
// faster.
double EvenSpacingBound(const TransferSchedule& schedule, PassKind kind, const BlockCosts& costs);

// facts/offload.md 5.2, residents evenly spaced and a ring that is emptied at the turn and at the
// end of a step: every streamed block is loaded once in each direction.
double FlushedRingBound(const std::vector<int>& streamed, PassKind kind, const BlockCosts& costs);

// facts/offload.md 5.2, contiguous placement with one block of look-ahead: what streaming the last
// `streamed` blocks costs.
double TailPlacementBound(int streamed, PassKind kind, const BlockCosts& costs);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_STEP_MODEL_H_
