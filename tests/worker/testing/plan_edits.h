// SPDX-License-Identifier: Apache-2.0
// Changes to a plan that the planner would make for other budgets or settings, made by hand: what
// a test wants to see executed.
#ifndef BLOCKSWAP_TESTS_WORKER_TESTING_PLAN_EDITS_H_
#define BLOCKSWAP_TESTS_WORKER_TESTING_PLAN_EDITS_H_

#include "offload/plan/swap_plan.h"

namespace blockswap::worker::testing {

// All micro-batches of a step through each block under one lease. REQUIRES: h2d_only, granularity
// block.
void MakeBlockMajor(offload::SwapPlan* plan);

// All blocks stream, and share `slots` slots as one window in a training step; a forward-only pass
// moves every second block alone. REQUIRES: h2d_only, granularity block, blocks that are alike; at
// least half as many slots as blocks.
void MakeWindow(offload::SwapPlan* plan, int slots);

// Every `every`-th block (of those that are resident, when `only_resident`) keeps its activations.
void KeepActivations(offload::SwapPlan* plan, int every, bool only_resident = true);

// The saved input of every `every`-th block that keeps no activations waits on the host.
void OffloadBoundaries(offload::SwapPlan* plan, int every = 1);

}  // namespace blockswap::worker::testing

#endif  // BLOCKSWAP_TESTS_WORKER_TESTING_PLAN_EDITS_H_
