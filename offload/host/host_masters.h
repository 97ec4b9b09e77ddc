// SPDX-License-Identifier: Apache-2.0
// The host homes of streamed blocks: one packed buffer each, exact to a page, in one of three
// tiers.
#ifndef BLOCKSWAP_OFFLOAD_HOST_HOST_MASTERS_H_
#define BLOCKSWAP_OFFLOAD_HOST_HOST_MASTERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "offload/host/block_reader.h"
#include "offload/host/pinned_arena.h"
#include "offload/host/shared_masters.h"
#include "offload/plan/swap_plan.h"

namespace blockswap::offload {

inline constexpr int kNoContent = -1;

// What a buffer is taken for.
struct MasterSpec {
  int64_t bytes = 0;           // a multiple of kTensorAlignment
  int block = kNoContent;      // whose weights it holds from the start; kNoContent: a spare buffer
  bool stays_in_file = false;  // no memory: read again at each use
};

struct HostBuffer {
  std::byte* data = nullptr;  // nullptr in the file tier
  int64_t bytes = 0;
  HostTier tier = HostTier::kPageable;
};

// Owns: the arenas. Thread safety: the trainer's thread; buffers may be read by copies meanwhile.
class HostMasters {
 public:
  // What else to heed.
  struct Sharing {
    bool one_tier = false;  // when not everything can be locked, lock nothing rather than a part
    // To be left lockable for the staging buffers that pageable masters need.
    int64_t reserved_bytes = 0;
    SharedMasters* shared = nullptr;  // where blocks' weights are shared with other jobs; outlives
  };

  // One buffer per spec. kAuto locks everything if the system allows it, else the first buffers
  // that the limit and kLockableShare allow; kRequired fails with ResourceExhausted naming
  // page-locked host memory; kNever locks nothing. A failure leaves nothing locked.
  static absl::StatusOr<HostMasters> Create(DeviceRuntime* device,
                                            const std::vector<MasterSpec>& specs, PinPolicy policy,
                                            const Sharing& sharing);

  // One more buffer, locked if policy and system allow it; returns its index.
  absl::StatusOr<int> Add(const MasterSpec& spec);
  // Gives the buffer's memory back; its index is not used again. REQUIRES: no copy reads it.
  void Remove(int index);

  // Brings the block's weights into the buffer: by `read`, or nothing to do where another job left
  // them (after their checksum was compared) and in the file tier. Shared buffers are read-only
  // afterwards. REQUIRES: the spec named a block.
  absl::Status Fill(int index, const BlockReader& read);

  const HostBuffer& buffer(int index) const { return homes_[index].buffer; }
  int size() const { return static_cast<int>(homes_.size()); }
  int64_t bytes() const { return bytes_of(HostTier::kPinned) + bytes_of(HostTier::kPageable); }
  int64_t bytes_of(HostTier tier) const;
  int64_t shared_bytes() const;  // of bytes(): in memory that other jobs use too
  int64_t reused_bytes() const { return reused_bytes_; }  // found filled: not read from the file
  int64_t locked_bytes() const;                           // whole pages
  bool has_pageable() const { return bytes_of(HostTier::kPageable) > 0; }
  // What did not go as planned, one sentence each.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Home {
    MasterSpec spec;
    PinnedArena arena;
    HostBuffer buffer;
    bool shared = false;
  };

  absl::StatusOr<Home> Take(const MasterSpec& spec, PinnedArena::Lock lock);
  absl::StatusOr<PinnedArena> TakeArena(const MasterSpec& spec, PinnedArena::Lock lock,
                                        bool* shared);
  // Locks as many leading buffers as it may and returns how many of the specs they are.
  absl::StatusOr<int> TakeLocked(const std::vector<MasterSpec>& specs);
  void LeaveRoom();
  bool LockMayFit(int64_t bytes) const;
  absl::Status MakePrivate(Home& home, const BlockReader& read);

  DeviceRuntime* device_ = nullptr;
  PinPolicy policy_ = PinPolicy::kAuto;
  Sharing sharing_;
  std::vector<Home> homes_;
  int64_t reused_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_HOST_HOST_MASTERS_H_
