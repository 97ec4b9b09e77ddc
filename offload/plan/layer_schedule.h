// SPDX-License-Identifier: Apache-2.0
// Plans the byte window of layer granularity: which linear is loaded when and where, and how long a
// cycle takes.
//
// Note [Layer window]
// The window holds two linears at least, whatever their sizes, so one can come in while the other
// is read. Every linear that is asked for and not there gets its place when the cycle is built, in
// order of need; the load may start once the last reader of those bytes is past. Two ways to place:
// kEnds puts each at the end of the window that the linear before it does not use, which never has
// to wait for that one; kOldest takes the place that has been free for longest, kFarthest the one
// whose linears are needed again last, both wherever it fits. None is best for every mix of sizes
// and speeds, so all are built and the fastest is kept. A cycle is built again from where it ended
// until it ends where it started; what then still differs is moved at the end of the cycle. Linears
// that are in the window where the direction turns or the next step begins are used there.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_LAYER_SCHEDULE_H_
#define BLOCKSWAP_OFFLOAD_PLAN_LAYER_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "offload/plan/step_model.h"
#include "offload/plan/swap_plan.h"

namespace blockswap::offload {

struct LayerWindowRequest {
  const std::vector<BlockProfile>* blocks = nullptr;
  std::vector<int> streamed;         // ascending; each has layers
  std::vector<int> training_visits;  // of blocks, as in TransferSchedule::visits
  std::vector<int> forward_only_visits;
  int repeats = 1;   // micro-batches that go through a block in one visit (block-major)
  BlockCosts costs;  // seconds per block; empty: a copy takes as long as computing with its bytes
};

// Pure. REQUIRES: `streamed` not empty.
LayerWindow PlanLayerWindow(const LayerWindowRequest& request);

// One cycle of `window` with one compute and one copy lane.
CycleTimes SimulateLayerCycle(const LayerWindow& window, PassKind kind,
                              const LayerWindowRequest& request);

// Bytes over the link in one cycle.
int64_t LayerCycleBytes(const LayerWindow& window, PassKind kind,
                        const std::vector<BlockProfile>& blocks);

// Where the tensors of a streamed block that belong to no layer lie on the device.
struct RestLayout {
  std::vector<int64_t> offset_of;  // by tensor; -1: belongs to a layer
  int64_t bytes = 0;
};
RestLayout LayoutRest(const BlockProfile& block);

// Checks that the window of a plan at layer granularity can be executed for `blocks`.
absl::Status ValidateLayerWindow(const SwapPlan& plan, const std::vector<BlockProfile>& blocks);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_LAYER_SCHEDULE_H_
