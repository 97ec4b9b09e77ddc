// SPDX-License-Identifier: Apache-2.0
// Seconds that each block of a plan takes to compute and to copy on a given device and link.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_BLOCK_COSTS_H_
#define BLOCKSWAP_OFFLOAD_PLAN_BLOCK_COSTS_H_

#include <vector>

#include "offload/plan/activation_bytes.h"
#include "offload/plan/planner.h"
#include "offload/plan/step_model.h"

namespace blockswap::offload {

// Whether a step of this request can be timed at all: a compute speed and a rate for what streams.
bool SpeedsAreKnown(const PlanRequest& request);

// Costs of one micro-batch, or of all of them for a block-major step. `tiers`: by block; empty: all
// pinned. An unknown compute speed gives no compute time, an unknown rate of a slower tier is taken
// to equal the pinned one.
BlockCosts MakeCosts(const PlanRequest& request, const std::vector<HostTier>& tiers,
                     const ActivationChoice& activations);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_BLOCK_COSTS_H_
