// SPDX-License-Identifier: Apache-2.0
// The right to read one block's weights on the device, until the compute stream has passed the
// lease's end.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_BLOCK_LEASE_H_
#define BLOCKSWAP_OFFLOAD_SWAP_BLOCK_LEASE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "offload/device/device_runtime.h"
#include "offload/swap/tensor_lease.h"

namespace blockswap::offload {

class BlockSwapper;

enum class Direction { kForward, kBackward };

// Move-only. Destruction (or Release) records "compute is past this block" and lets the swapper
// queue the next transfer. Thread safety: the trainer's thread only. REQUIRES: outlived by the
// BlockSwapper it came from.
class BlockLease {
 public:
  BlockLease() = default;
  BlockLease(BlockLease&& other) noexcept { *this = static_cast<BlockLease&&>(other); }
  BlockLease& operator=(BlockLease&& other) noexcept;
  ~BlockLease() { Release(); }

  bool valid() const { return swapper_ != nullptr; }
  int block() const { return block_; }
  uint64_t generation() const { return generation_; }

  // Device bytes of tensor `index` of the block. Internal when the slot was given to another block
  // since: using that memory would be a silent wrong result. REQUIRES: valid().
  absl::StatusOr<DeviceSpan> Get(int index) const;

  // As Get, for as long as the result lives: at layer granularity the only way to read, since a
  // tensor is on the device only while it is held. At block granularity it costs the generation
  // check. REQUIRES: valid().
  absl::StatusOr<TensorLease> Hold(int index) const;

  // Ends the lease. A failure to record is kept by the swapper and returned by its next Acquire.
  void Release();

 private:
  friend class BlockSwapper;
  BlockLease(BlockSwapper* swapper, int block, int slot, uint64_t generation, int visit)
      : swapper_(swapper), block_(block), slot_(slot), generation_(generation), visit_(visit) {}

  BlockSwapper* swapper_ = nullptr;
  int block_ = -1;
  int slot_ = -1;  // -1: resident
  uint64_t generation_ = 0;
  int visit_ = -1;  // of the schedule, whose transfers the end of this lease lets go; -1: none
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_BLOCK_LEASE_H_
