// SPDX-License-Identifier: Apache-2.0
// The same job with somewhat less and somewhat more device memory: what each would change.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_ALTERNATIVES_H_
#define BLOCKSWAP_OFFLOAD_PLAN_ALTERNATIVES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "offload/plan/planner.h"

namespace blockswap::offload {

struct Alternative {
  int64_t vram_budget_bytes = 0;
  bool fits = false;
  // Of the plan under that budget; zero where it does not fit.
  int64_t device_bytes = 0;
  int blocks_to_swap = 0;
  int num_streamed = 0;
  int64_t h2d_bytes_per_step = 0;
  absl::Duration step;  // zero: unknown
  std::string saves;    // one phrase: what this gains and costs against the plan
};

// 2 GiB less than `plan` takes and 2 GiB more, or an eighth of it for a small model. Less comes
// first; more is left out where it would change nothing. REQUIRES: plan == Plan(request).
std::vector<Alternative> Alternatives(const PlanRequest& request, const SwapPlan& plan);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_ALTERNATIVES_H_
