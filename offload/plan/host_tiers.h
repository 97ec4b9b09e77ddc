// SPDX-License-Identifier: Apache-2.0
// Where in host memory each master waits: page-locked, pageable, or not at all but in its file.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_HOST_TIERS_H_
#define BLOCKSWAP_OFFLOAD_PLAN_HOST_TIERS_H_

#include <cstdint>
#include <vector>

#include "offload/plan/planner.h"
#include "offload/plan/refusal.h"

namespace blockswap::offload {

struct HostTiers {
  std::vector<HostTier> tier_of;  // by block; meaningless where there is no master
  int64_t pinned_bytes = 0;       // staging buffers included
  int64_t pageable_bytes = 0;     // state of a base that trains included
  int64_t file_bytes = 0;         // of blocks that are read at each use: no host memory
  bool staged = false;            // some masters pass through pinned buffers

  int64_t host_bytes() const { return pinned_bytes + pageable_bytes; }
};

// In block order: page-locked as far as the limit goes, then pageable as far as the host budget
// goes, then in the file where the request allows it. In exchange mode all masters are of one tier.
HostTiers AssignTiers(const PlanRequest& request, const Budgets& budgets,
                      const Candidate& candidate);

// FailedPrecondition where page-locked memory is required and the limit is lower.
absl::Status CheckPinning(const PlanRequest& request, const Candidate& candidate);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_HOST_TIERS_H_
