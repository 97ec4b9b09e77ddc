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
  int64_t device_bytes = 0;   // 0: no limit known
  int64_t host_bytes = 0;     // 0: no limit known
  bool may_use_file = false;  // masters beyond host_bytes may stay in the checkpoint file
  std::vector<std::string> notes;
};

// What the user set, never more than what is free.
Budgets EffectiveBudgets(const PlanRequest& request);

bool Fits(const Candidate& candidate, const Budgets& budgets);

// Needs least of the device: a plain ring of `ring_size` with the number of blocks, or the fixed
// one.
Candidate SmallestCandidate(const PlanRequest& request, int ring_size, bool free_choice,
                            const ActivationChoice& activations);

// FailedPrecondition. The settings it offers were tried and fit.
absl::Status DoesNotFit(const PlanRequest& request, const Budgets& budgets,
                        const ActivationChoice& activations);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_REFUSAL_H_
