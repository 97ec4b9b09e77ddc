// SPDX-License-Identifier: Apache-2.0
// The host homes of streamed blocks: one packed buffer per block, in one exact arena per memory
// tier.
#ifndef BLOCKSWAP_OFFLOAD_HOST_HOST_MASTERS_H_
#define BLOCKSWAP_OFFLOAD_HOST_HOST_MASTERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/host/pinned_arena.h"
#include "offload/plan/swap_plan.h"

namespace blockswap::offload {

struct HostBuffer {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  HostTier tier = HostTier::kPageable;
};

// Owns: the arenas. Thread safety: immutable after Create.
class HostMasters {
 public:
  // What else to heed when not everything can be locked.
  struct Sharing {
    bool one_tier = false;  // then lock nothing rather than a part
    int64_t reserved_bytes =
        0;  // to be left lockable for the staging buffers that pageable masters need
  };

  // One buffer per entry of `sizes` (multiples of kTensorAlignment). kAuto locks everything if the
  // system allows it, else the first buffers that the limit allows; kRequired fails with
  // ResourceExhausted naming page-locked host memory; kNever locks nothing.
  static absl::StatusOr<HostMasters> Create(DeviceRuntime* device,
                                            const std::vector<int64_t>& sizes, PinPolicy policy,
                                            const Sharing& sharing);

  const HostBuffer& buffer(int index) const { return buffers_[index]; }
  int size() const { return static_cast<int>(buffers_.size()); }
  int64_t bytes() const { return pinned_.bytes() + pageable_.bytes(); }
  int64_t locked_bytes() const { return pinned_.locked_bytes(); }  // whole pages
  bool has_pageable() const { return pageable_.bytes() > 0; }

 private:
  // Locks as many leading buffers as the system lets it and returns their number.
  int LockSome(DeviceRuntime* device, const std::vector<int64_t>& sizes, int64_t reserved_bytes);
  void Assign(const std::vector<int64_t>& sizes, int num_pinned);

  PinnedArena pinned_;
  PinnedArena pageable_;
  std::vector<HostBuffer> buffers_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_HOST_HOST_MASTERS_H_
