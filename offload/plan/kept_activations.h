// SPDX-License-Identifier: Apache-2.0
// Spends device memory that is left over on activations that need no recompute.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_KEPT_ACTIVATIONS_H_
#define BLOCKSWAP_OFFLOAD_PLAN_KEPT_ACTIVATIONS_H_

#include "offload/plan/candidate.h"
#include "offload/plan/refusal.h"

namespace blockswap::offload {

// Whether a plan for `request` may keep any. REQUIRES: a block.
bool MayKeepActivations(const PlanRequest& request);

// Adds kept activations to `candidate` while they fit, those that save most time for their bytes
// first.
void KeepActivations(const PlanRequest& request, const Budgets& budgets, Candidate& candidate);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_KEPT_ACTIVATIONS_H_
