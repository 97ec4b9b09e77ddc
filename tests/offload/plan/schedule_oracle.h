// SPDX-License-Identifier: Apache-2.0
// The fastest way to stream a few blocks, by trying every placement and every schedule.
#ifndef BLOCKSWAP_TESTS_OFFLOAD_PLAN_SCHEDULE_ORACLE_H_
#define BLOCKSWAP_TESTS_OFFLOAD_PLAN_SCHEDULE_ORACLE_H_

#include <cstdint>
#include <vector>

#include "offload/plan/step_model.h"

namespace blockswap::offload {

// Seconds of one more training step in the steady state, over all sets of resident blocks, all ways
// to give the rest slots of fixed sizes within `weight_bytes`, and all transfers after every visit
// (at most two after one: there is one copy lane). The schedule need not repeat, so that no plan's
// can be faster. Infinite when nothing fits. REQUIRES: at most seven blocks.
double FastestStep(const std::vector<int64_t>& block_bytes, int64_t weight_bytes,
                   const BlockCosts& costs);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_TESTS_OFFLOAD_PLAN_SCHEDULE_ORACLE_H_
