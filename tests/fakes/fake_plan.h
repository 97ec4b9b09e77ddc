// SPDX-License-Identifier: Apache-2.0
// Plans made by hand for tests of the swapper, so that they do not move with the planner's taste.
#ifndef BLOCKSWAP_TESTS_FAKES_FAKE_PLAN_H_
#define BLOCKSWAP_TESTS_FAKES_FAKE_PLAN_H_

#include <vector>

#include "offload/plan/swap_plan.h"

namespace blockswap::offload {

// The blocks of `streamed` (ascending) share a ring of at most `ring_size` slots; the others are
// resident. ring_bytes and resident_bytes are predicted, nothing else.
SwapPlan MakeRingPlan(const std::vector<BlockProfile>& blocks, const std::vector<int>& streamed,
                      int ring_size, PinPolicy policy = PinPolicy::kNever);

// The same with `num_streamed` blocks, evenly spaced.
SwapPlan MakeEvenRingPlan(const std::vector<BlockProfile>& blocks, int num_streamed, int ring_size,
                          PinPolicy policy = PinPolicy::kNever);

// The layers of `streamed` (not empty) go through a window, one at a time.
SwapPlan MakeLayerPlan(const std::vector<BlockProfile>& blocks, const std::vector<int>& streamed,
                       PinPolicy policy = PinPolicy::kNever);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_TESTS_FAKES_FAKE_PLAN_H_
