// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/host_tiers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/plan/shortfall.h"

namespace blockswap::offload {
namespace {

// Saved inputs are locked like masters, if there is room left.
void AddBoundaries(int64_t bytes, bool lock, int64_t limit, HostTiers& tiers) {
  const bool fits = lock && bytes <= limit - tiers.pinned_bytes;
  (fits ? tiers.pinned_bytes : tiers.pageable_bytes) += bytes;
}

// One tier for everything: as much as there is, or page-locked as a whole.
HostTiers OneTier(const Candidate& candidate, HostTier tier, int64_t staging) {
  HostTiers tiers;
  tiers.tier_of.assign(candidate.num_blocks, tier);
  if (tier == HostTier::kPinned) {
    tiers.pinned_bytes = candidate.host_bytes;
  } else {
    tiers.pageable_bytes = candidate.host_bytes;
    tiers.staged = staging > 0 && candidate.host_bytes > 0;
    if (tiers.staged) tiers.pinned_bytes = staging;
  }
  return tiers;
}

HostTiers Split(const PlanRequest& request, const Budgets& budgets, const Candidate& candidate) {
  const bool may_lock = request.constraints.pin_policy != PinPolicy::kNever;
  const int64_t staging = candidate.staging_bytes;
  // File reads need buffers even where pageable masters do not.
  const int64_t reads = budgets.may_use_file ? candidate.read_buffer_bytes : 0;
  HostTiers tiers;
  tiers.tier_of.assign(candidate.num_blocks, HostTier::kPageable);
  bool locking = may_lock;
  int64_t host_left = budgets.host_bytes - candidate.boundary_host_bytes - std::max(staging, reads);
  for (const int block : candidate.mastered) {
    const int64_t bytes = request.model.blocks[static_cast<size_t>(block)].bytes;
    HostTier& tier = tiers.tier_of[static_cast<size_t>(block)];
    locking = locking && tiers.pinned_bytes + bytes <= request.lockable_bytes - staging;
    if (budgets.may_use_file && budgets.host_bytes > 0 && bytes > host_left) {
      // Later blocks may be smaller, but one boundary between the tiers is easier to see through.
      host_left = 0;
      locking = false;
      tier = HostTier::kFile;
      tiers.file_bytes += bytes;
      continue;
    }
    host_left -= bytes;
    tier = locking ? HostTier::kPinned : HostTier::kPageable;
    (locking ? tiers.pinned_bytes : tiers.pageable_bytes) += bytes;
  }
  tiers.staged = (staging > 0 && tiers.pageable_bytes > 0) || tiers.file_bytes > 0;
  if (tiers.file_bytes > 0 && staging == 0) tiers.pageable_bytes += reads;
  if (tiers.staged) tiers.pinned_bytes += staging;
  return tiers;
}

}  // namespace

HostTiers AssignTiers(const PlanRequest& request, const Budgets& budgets,
                      const Candidate& candidate) {
  const PinPolicy policy = request.constraints.pin_policy;
  const int64_t limit = request.lockable_bytes;
  const bool host_suffices =
      !budgets.may_use_file || budgets.host_bytes == 0 ||
      candidate.host_bytes + candidate.boundary_host_bytes <= budgets.host_bytes;
  const bool all_pinned =
      policy != PinPolicy::kNever && candidate.host_bytes <= limit && host_suffices;
  HostTiers tiers;
  if (all_pinned) {
    tiers = OneTier(candidate, HostTier::kPinned, /*staging=*/0);
  } else if (Exchanges(request)) {
    tiers = OneTier(candidate, HostTier::kPageable, candidate.staging_bytes);
  } else {
    tiers = Split(request, budgets, candidate);
  }
  AddBoundaries(candidate.boundary_host_bytes, policy != PinPolicy::kNever, limit, tiers);
  tiers.pageable_bytes += candidate.host_state_bytes;
  return tiers;
}

absl::Status CheckPinning(const PlanRequest& request, const Candidate& candidate) {
  if (request.constraints.pin_policy != PinPolicy::kRequired) return absl::OkStatus();
  const int64_t limit = request.lockable_bytes;
  if (candidate.host_bytes <= limit) return absl::OkStatus();
  constexpr char kWouldFit[] =
      "pinned_memory auto, a higher RLIMIT_MEMLOCK (ulimit -l), or a lower blocks_to_swap";
  return WithShortfall(
      absl::FailedPreconditionError(absl::StrCat(
          "page-locked host memory too small: needed ", base::FormatByteSize(candidate.host_bytes),
          " for ", candidate.mastered.size(),
          " streamed blocks (pinned_memory required), available ", base::FormatByteSize(limit),
          "; would fit: ", kWouldFit)),
      {"locked_memory", candidate.host_bytes, limit, kWouldFit});
}

}  // namespace blockswap::offload
