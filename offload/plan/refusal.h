// SPDX-License-Identifier: Apache-2.0
// What a plan has to fit into, and the answer when nothing does: needed, available, and settings
// that would fit.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_REFUSAL_H_
#define BLOCKSWAP_OFFLOAD_PLAN_REFUSAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "offload/plan/candidate.h"

namespace blockswap::offload {

struct Budgets {
  int64_t device_bytes = 0;  // 0: no limit known
  int64_t host_bytes = 0;    // 0: no limit known
  std::vector<std::string> notes;
};

// What the user set, never more than what is free.
Budgets EffectiveBudgets(const PlanRequest& request);

bool Fits(const Candidate& candidate, const Budgets& budgets);

// FailedPrecondition. The settings it offers were tried and fit.
absl::Status DoesNotFit(const PlanRequest& request, const Budgets& budgets);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_REFUSAL_H_
