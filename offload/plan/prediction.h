// SPDX-License-Identifier: Apache-2.0
// Predicts what a plan takes and how long its step is, and says why the plan is as it is.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_PREDICTION_H_
#define BLOCKSWAP_OFFLOAD_PLAN_PREDICTION_H_

#include "offload/plan/candidate.h"
#include "offload/plan/host_tiers.h"
#include "offload/plan/layer_schedule.h"
#include "offload/plan/refusal.h"

namespace blockswap::offload {

// Bytes of the device, the host by tier, and the link in each direction for one step.
void PredictBytes(const PlanRequest& request, const Candidate& candidate, const HostTiers& tiers,
                  SwapPlan& plan);

// What the window of a plan at layer granularity is built from and timed with. `request` outlives
// it; the plan's visits are those of `plan`.
LayerWindowRequest MakeLayerRequest(const PlanRequest& request, const Candidate& candidate,
                                    const HostTiers& tiers, const SwapPlan& plan);

// Times of one step; zero where a speed that they depend on is unknown.
void PredictTimes(const PlanRequest& request, const Candidate& candidate, const HostTiers& tiers,
                  SwapPlan& plan);

// What was chosen besides the streamed blocks, what it costs, and what limits it.
void ExplainPlan(const PlanRequest& request, const Budgets& budgets, const Candidate& candidate,
                 const HostTiers& tiers, SwapPlan& plan);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_PREDICTION_H_
