// SPDX-License-Identifier: Apache-2.0
// The inside of BlockSwapper: what it owns and the steps of Create, Acquire and Release. Included
// by its sources only.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_BLOCK_SWAPPER_IMPL_H_
#define BLOCKSWAP_OFFLOAD_SWAP_BLOCK_SWAPPER_IMPL_H_

#include <memory>
#include <vector>

#include "offload/plan/slot_layout.h"
#include "offload/swap/block_swapper.h"
#include "offload/swap/block_transfers.h"
#include "offload/swap/device_homes.h"
#include "offload/swap/layer_stream.h"
#include "offload/swap/slot_ring.h"
#include "offload/swap/visit_cursor.h"
#include "offload/swap/weight_checks.h"

namespace blockswap::offload {

// Owns: everything BlockSwapper owns. Thread safety: the trainer's thread only.
class BlockSwapper::Impl {
 public:
  Impl(DeviceRuntime* device, SwapPlan plan, std::vector<BlockProfile> blocks,
       const BlockReader& reader, const SwapperOptions& options);
  ~Impl();

  absl::Status TakeMemory();
  absl::Status ReadBlocks();
  absl::Status FillSlots();

  absl::Status Adopt(SwapPlan next);
  absl::StatusOr<absl::Span<std::byte>> MutableMaster(int block);
  absl::Status MasterChanged(int block);

  absl::Status VerifyAll();

  absl::Status BeginPass(PassKind kind);
  absl::StatusOr<BlockLease> Acquire(BlockSwapper* self, int block, Direction direction);
  void Release(int slot, int visit);
  absl::StatusOr<DeviceSpan> Tensor(int block, int slot, uint64_t generation, int index) const;
  absl::StatusOr<TensorLease> Hold(BlockSwapper* self, int block, int slot, uint64_t generation,
                                   int index);
  void EndHold(int unit);
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
  bool InRange(int block) const { return block >= 0 && block < static_cast<int>(blocks_.size()); }
  // Keeps the first failure; returns the one that is kept.
  absl::Status Keep(const absl::Status& status);

  // Device memory that `plan` needs.
  std::vector<HomeDemand> Demand(const SwapPlan& plan, const SlotLayout& layout) const;
  // Builds the ring and the residents' places out of homes_; every slot starts empty, but those of
  // the residents of a base that trains.
  void BindHomes();
  // At layer granularity: the window and the tensors beside it, rebuilt out of homes_.
  void BindLayers();
  bool StreamsLayers(int block) const { return layers_ != nullptr && layers_->Streams(block); }

  // The steps of Adopt.
  absl::Status CheckAdoptable(const SwapPlan& next) const;
  absl::Status AddMasters(const SwapPlan& next, std::vector<MasterChange>& added);
  absl::Status FillNewMaster(const MasterChange& change);
  absl::Status Commit(SwapPlan next, const std::vector<MasterChange>& added);
  absl::Status GoOnAsBefore(const absl::Status& cause, const std::vector<HomeKey>& lost,
                            const std::vector<MasterChange>& added);
  absl::Status UploadResident(int block);

  // Reads the block from the checkpoint into device memory, by way of `staging` where the host
  // cannot write there.
  absl::Status ReadResident(int block, DeviceSpan destination, PinnedArena& staging);
  // Starts the transfers that follow `visit`; what does not apply any more is left to a later miss.
  absl::Status RunTransfers(int visit);
  absl::Status LoadOnDemand(int block);
  absl::Status RestoreInitial();

  // verify_weights. Look gives device bytes to the host, valid until the next call; `ready` is the
  // event of the copy that brought them.
  absl::Status RecordMaster(int block);
  absl::StatusOr<absl::Span<const std::byte>> Look(DeviceSpan span, EventId ready);
  absl::Status CheckSlot(int slot_index);
  absl::Status CheckUnit(int unit);
  absl::Status CheckRest(int block);
  absl::Status CheckEverywhere(int block);

  void CountStall(Direction direction);

  DeviceRuntime* const device_;
  SwapPlan plan_;
  const std::vector<BlockProfile> blocks_;
  const BlockReader reader_;
  const SwapperOptions options_;
  SlotLayout layout_;
  VisitCursor training_;
  VisitCursor forward_only_;
  PassKind pass_ = PassKind::kTraining;

  DeviceHomes homes_;
  std::vector<DeviceSpan> resident_of_;  // by block; null for blocks that use slots
  SlotRing ring_;
  std::unique_ptr<BlockTransfers> transfers_;
  std::unique_ptr<LayerStream> layers_;        // layer granularity only
  Direction direction_ = Direction::kForward;  // of the last Acquire
  EventId read_event_ = kNoEvent;              // orders ReadBlock behind compute

  // Where the base trains: masters that are being changed, and what was to be evicted for them.
  std::vector<bool> writing_;
  std::vector<int> deferred_evict_;

  std::unique_ptr<WeightChecks> checks_;  // verify_weights only
  std::vector<std::byte> scratch_;        // of the checks

  absl::Status failure_;
  int leases_ = 0;
  SwapStats counters_;
  absl::Duration stall_seen_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_BLOCK_SWAPPER_IMPL_H_
