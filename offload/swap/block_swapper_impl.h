// SPDX-License-Identifier: Apache-2.0
// The inside of BlockSwapper: what it owns and the steps of Create, Acquire and Release. Included
// by its sources only.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_BLOCK_SWAPPER_IMPL_H_
#define BLOCKSWAP_OFFLOAD_SWAP_BLOCK_SWAPPER_IMPL_H_

#include <memory>
#include <vector>

#include "offload/device/device_arena.h"
#include "offload/plan/slot_layout.h"
#include "offload/swap/block_swapper.h"
#include "offload/swap/block_transfers.h"
#include "offload/swap/slot_ring.h"
#include "offload/swap/visit_cursor.h"

namespace blockswap::offload {

// Owns: everything BlockSwapper owns. Thread safety: the trainer's thread only.
class BlockSwapper::Impl {
 public:
  Impl(DeviceRuntime* device, SwapPlan plan, std::vector<BlockProfile> blocks);
  ~Impl();

  absl::Status TakeMemory();
  absl::Status ReadBlocks(const BlockReader& reader);
  absl::Status FillSlots();

  absl::Status BeginPass(PassKind kind);
  absl::StatusOr<BlockLease> Acquire(BlockSwapper* self, int block, Direction direction);
  void Release(int slot, int visit);
  absl::StatusOr<DeviceSpan> Tensor(int block, int slot, uint64_t generation, int index) const;
  absl::Status Drain();
  absl::Status ReadBlock(int block, absl::Span<std::byte> destination);
  const SwapPlan& plan() const { return plan_; }
  SwapStats stats() const;

 private:
  VisitCursor& cursor() { return pass_ == PassKind::kTraining ? training_ : forward_only_; }
  const TransferSchedule& schedule() const {
    return pass_ == PassKind::kTraining ? plan_.training : plan_.forward_only;
  }
  bool InSlots(int block) const;
  // Keeps the first failure; returns the one that is kept.
  absl::Status Keep(const absl::Status& status);

  absl::Status ReadResident(int block, DeviceSpan destination, const BlockReader& reader,
                            PinnedArena& staging);
  // Starts the transfers that follow `visit`; what does not apply any more is left to a later miss.
  absl::Status RunTransfers(int visit);
  absl::Status LoadOnDemand(int block);
  absl::Status RestoreInitial();
  void CountStall(Direction direction);

  DeviceRuntime* const device_;
  const SwapPlan plan_;
  const std::vector<BlockProfile> blocks_;
  const SlotLayout layout_;
  VisitCursor training_;
  VisitCursor forward_only_;
  PassKind pass_ = PassKind::kTraining;

  DeviceArena residents_;
  DeviceArena slots_arena_;
  std::vector<DeviceSpan> resident_of_;  // by block; null for blocks that use slots
  SlotRing ring_;
  std::unique_ptr<BlockTransfers> transfers_;
  EventId read_event_ = kNoEvent;  // orders ReadBlock behind compute

  absl::Status failure_;
  int leases_ = 0;
  SwapStats counters_;
  absl::Duration stall_seen_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_BLOCK_SWAPPER_IMPL_H_
