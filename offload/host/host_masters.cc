// SPDX-License-Identifier: Apache-2.0
#include "offload/host/host_masters.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/status_macros.h"
#include "offload/device/host_memory.h"
#include "offload/host/host_budget.h"

namespace blockswap::offload {
namespace {

int64_t SumOfFirst(const std::vector<int64_t>& sizes, int count) {
  return std::accumulate(sizes.begin(), sizes.begin() + count, int64_t{0});
}

// How many leading buffers fit into `limit` as one page-rounded arena.
int CountThatFits(const std::vector<int64_t>& sizes, int64_t limit) {
  int count = 0;
  while (count < static_cast<int>(sizes.size()) &&
         PageCeil(SumOfFirst(sizes, count + 1)) <= limit) {
    ++count;
  }
  return count;
}

absl::Status Refused(int64_t bytes, int num_buffers, const absl::Status& cause) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "page-locked host memory for the masters of ", num_buffers,
      " streamed blocks refused: asked ", bytes, " bytes (", base::FormatByteSize(bytes),
      "), RLIMIT_MEMLOCK ", LockLimitText(),
      "; raise the limit (ulimit -l), lower blocks_to_swap, or set pinned_memory to auto; cause: ",
      std::string(cause.message())));
}

}  // namespace

int HostMasters::LockSome(DeviceRuntime* device, const std::vector<int64_t>& sizes,
                          int64_t reserved_bytes) {
  // Held only while trying, so that what is left afterwards is enough for the staging buffers.
  const absl::StatusOr<PinnedArena> reserved =
      PinnedArena::Create(device, reserved_bytes, PinnedArena::Lock::kYes);
  if (!reserved.ok()) return 0;
  int count = static_cast<int>(sizes.size());
  while (count > 0) {
    // First down to what the limit promises, then by halves: a driver may refuse for reasons it
    // does not tell.
    const int promised = CountThatFits(sizes, ReadHostFacts().lockable_bytes);
    count = promised < count ? promised : count / 2;
    absl::StatusOr<PinnedArena> pinned =
        PinnedArena::Create(device, SumOfFirst(sizes, count), PinnedArena::Lock::kYes);
    if (!pinned.ok()) continue;
    pinned_ = *std::move(pinned);
    break;
  }
  return count;
}

absl::StatusOr<HostMasters> HostMasters::Create(DeviceRuntime* device,
                                                const std::vector<int64_t>& sizes, PinPolicy policy,
                                                const Sharing& sharing) {
  HostMasters masters;
  const int count = static_cast<int>(sizes.size());
  const int64_t total = SumOfFirst(sizes, count);
  int num_pinned = 0;
  if (policy != PinPolicy::kNever) {
    absl::StatusOr<PinnedArena> all = PinnedArena::Create(device, total, PinnedArena::Lock::kYes);
    if (all.ok()) {
      masters.pinned_ = *std::move(all);
      num_pinned = count;
    } else if (policy == PinPolicy::kRequired) {
      return Refused(total, count, all.status());
    } else if (!sharing.one_tier) {
      num_pinned = masters.LockSome(device, sizes, sharing.reserved_bytes);
    }
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(
      masters.pageable_,
      PinnedArena::Create(device, total - SumOfFirst(sizes, num_pinned), PinnedArena::Lock::kNo));
  masters.Assign(sizes, num_pinned);
  return masters;
}

void HostMasters::Assign(const std::vector<int64_t>& sizes, int num_pinned) {
  int64_t offset = 0;
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    if (i == num_pinned) offset = 0;
    const bool pinned = i < num_pinned;
    buffers_.push_back({.data = (pinned ? pinned_ : pageable_).data() + offset,
                        .bytes = sizes[i],
                        .tier = pinned ? HostTier::kPinned : HostTier::kPageable});
    offset += sizes[i];
  }
}

}  // namespace blockswap::offload
