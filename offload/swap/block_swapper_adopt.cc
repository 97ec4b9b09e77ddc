// SPDX-License-Identifier: Apache-2.0
// Changing to another plan between passes, and masters that change.
//
// Note [Adopting a plan]
// Everything that can be refused comes before anything that changes: first the masters of blocks
// that start to stream, filled from the device, then device memory. A block's bytes come down
// rather than out of the checkpoint again: both need the same host memory, but the link is faster
// than the disk and what was converted when it was read is not converted twice. From then on every
// block that changes places has a master, so device memory can be given back and, should the new
// plan be refused half-way, had and filled again. What is left to do afterwards is copying, and a
// copy that fails is a failed device.
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "offload/swap/block_swapper_impl.h"

namespace blockswap::offload {

absl::Status BlockSwapper::Impl::CheckAdoptable(const SwapPlan& next) const {
  BLOCKSWAP_RETURN_IF_ERROR(failure_);
  BLOCKSWAP_RETURN_IF_ERROR(ValidatePlan(next, blocks_));
  if (leases_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("a plan cannot change while ", leases_, " blocks are leased"));
  }
  for (size_t block = 0; block < writing_.size(); ++block) {
    if (writing_[block]) {
      return absl::FailedPreconditionError(absl::StrCat(
          "a plan cannot change while the master of block ", block, " is being changed"));
    }
  }
  if (plan_.exchanges() || next.exchanges()) {
    return absl::FailedPreconditionError(
        "a plan that exchanges blocks cannot change while it runs: restart the job");
  }
  if (plan_.base_trains != next.base_trains) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a plan with ", next.base_trains ? "a trained" : "a frozen",
        " base cannot follow one with ", plan_.base_trains ? "a trained" : "a frozen", " base"));
  }
  return absl::OkStatus();
}

absl::Status BlockSwapper::Impl::Adopt(SwapPlan next) {
  BLOCKSWAP_RETURN_IF_ERROR(CheckAdoptable(next));
  BLOCKSWAP_RETURN_IF_ERROR(Drain());
  BLOCKSWAP_RETURN_IF_ERROR(Keep(device_->SynchronizeStream(Stream::kCompute)));
  if (layers_ != nullptr) layers_->ForgetStaging();
  std::vector<MasterChange> added;
  std::vector<HomeKey> lost;
  absl::Status status = AddMasters(next, added);
  if (status.ok()) status = homes_.Reshape(Demand(next, LayoutSlots(next, blocks_)), &lost);
  if (!status.ok()) return GoOnAsBefore(status, lost, added);
  return Keep(Commit(std::move(next), added));
}

absl::Status BlockSwapper::Impl::AddMasters(const SwapPlan& next,
                                            std::vector<MasterChange>& added) {
  for (int block : next.mastered_blocks()) {
    if (transfers_->SuitsMaster(block, next)) continue;
    BLOCKSWAP_ASSIGN_OR_RETURN(const MasterChange change, transfers_->AddMaster(block, next));
    added.push_back(change);
  }
  // Residents of a base that trains have slots of their own.
  const int num_slots =
      next.slots + (next.base_trains ? static_cast<int>(blocks_.size()) - next.num_streamed() : 0);
  BLOCKSWAP_RETURN_IF_ERROR(transfers_->PrepareFor(next, num_slots));
  for (const MasterChange& change : added) {
    BLOCKSWAP_RETURN_IF_ERROR(FillNewMaster(change));
  }
  return absl::OkStatus();
}

absl::Status BlockSwapper::Impl::FillNewMaster(const MasterChange& change) {
  const DeviceSpan home = resident_of_[change.block];
  // One that leaves the file has no bytes on the device that can be relied on.
  if (home.data == nullptr) return transfers_->FillMaster(change.block, reader_);
  return transfers_->FillMaster(change.block, [&](int, absl::Span<std::byte> destination) {
    counters_.adopted_d2h_bytes += home.bytes;
    BLOCKSWAP_RETURN_IF_ERROR(Keep(device_->CopyToHost(destination.data(), home)));
    return Keep(device_->SynchronizeStream(Stream::kDeviceToHost));
  });
}

absl::Status BlockSwapper::Impl::UploadResident(int block) {
  const DeviceSpan home = homes_.span({HomeKind::kResident, block});
  counters_.adopted_h2d_bytes += home.bytes;
  if (std::byte* const data = transfers_->HostData(block); data != nullptr) {
    BLOCKSWAP_RETURN_IF_ERROR(device_->CopyToDevice(home, data));
    return device_->SynchronizeStream(Stream::kHostToDevice);
  }
  PinnedArena staging;
  return ReadResident(block, home, staging);
}

absl::Status BlockSwapper::Impl::GoOnAsBefore(const absl::Status& cause,
                                              const std::vector<HomeKey>& lost,
                                              const std::vector<MasterChange>& added) {
  if (!failure_.ok() || cause.code() == absl::StatusCode::kInternal) return Keep(cause);
  if (!lost.empty()) {
    BindHomes();
    transfers_->AssignEvents();
    BindLayers();
    for (const HomeKey& key : lost) {
      if (key.kind == HomeKind::kResident) {
        BLOCKSWAP_RETURN_IF_ERROR(Keep(UploadResident(key.index)));
      } else if (key.kind == HomeKind::kRest) {
        BLOCKSWAP_RETURN_IF_ERROR(Keep(layers_->UploadRest(key.index)));
      }
    }
  }
  for (const MasterChange& change : added) transfers_->UndoMaster(change);
  BLOCKSWAP_RETURN_IF_ERROR(Keep(RestoreInitial()));
  return cause;
}

absl::Status BlockSwapper::Impl::Commit(SwapPlan next, const std::vector<MasterChange>& added) {
  const int num_blocks = static_cast<int>(blocks_.size());
  plan_ = std::move(next);
  layout_ = LayoutSlots(plan_, blocks_);
  training_ = VisitCursor(&plan_.training, PassKind::kTraining, num_blocks);
  forward_only_ = VisitCursor(&plan_.forward_only, PassKind::kForwardOnly, num_blocks);
  BindHomes();
  transfers_->AssignEvents();
  BindLayers();
  for (int block = 0; block < num_blocks; ++block) {
    const HomeKey resident{HomeKind::kResident, block};
    if (homes_.span(resident).data != nullptr && !homes_.kept(resident)) {
      BLOCKSWAP_RETURN_IF_ERROR(UploadResident(block));
    }
    if (StreamsLayers(block) && !homes_.kept({HomeKind::kRest, block})) {
      BLOCKSWAP_RETURN_IF_ERROR(layers_->UploadRest(block));
    }
  }
  for (const MasterChange& change : added) {
    if (change.before >= 0) transfers_->RemoveBuffer(change.before);
  }
  std::vector<bool> mastered(blocks_.size(), false);
  for (int block : plan_.mastered_blocks()) mastered[static_cast<size_t>(block)] = true;
  for (int block = 0; block < num_blocks; ++block) {
    if (!mastered[static_cast<size_t>(block)]) transfers_->RemoveMaster(block);
  }
  ++counters_.adoptions;
  return RestoreInitial();
}

absl::StatusOr<absl::Span<std::byte>> BlockSwapper::Impl::MutableMaster(int block) {
  BLOCKSWAP_RETURN_IF_ERROR(failure_);
  if (!InRange(block)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no block ", block, ", the model has ", blocks_.size()));
  }
  if (!plan_.base_trains) {
    return absl::FailedPreconditionError(
        absl::StrCat("the master of block ", block, " cannot change: the base is frozen"));
  }
  const int slot = ring_.SlotOf(block);
  if (slot != kNoSlot && ring_.slot(slot).leases > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the master of block ", block, " cannot change while the block is leased"));
  }
  BLOCKSWAP_RETURN_IF_ERROR(Keep(transfers_->AwaitMasterUnread(block)));
  writing_[block] = true;
  return absl::MakeSpan(transfers_->HostData(block), static_cast<size_t>(blocks_[block].bytes));
}

absl::Status BlockSwapper::Impl::MasterChanged(int block) {
  BLOCKSWAP_RETURN_IF_ERROR(failure_);
  if (!InRange(block) || !writing_[block]) {
    return absl::FailedPreconditionError(
        absl::StrCat("the master of block ", block, " was not given out to be changed"));
  }
  writing_[block] = false;
  BLOCKSWAP_RETURN_IF_ERROR(Keep(RecordMaster(block)));
  const int evict = std::exchange(deferred_evict_[block], kNoBlock);
  int slot = ring_.SlotOf(block);
  if (slot == kNoSlot && evict != kNoBlock) {
    // Its transfer came by while the master was being changed.
    slot = ring_.SlotOf(evict);
    if (slot != kNoSlot && (ring_.slot(slot).leases > 0 || ring_.slot(slot).permanent ||
                            ring_.slot(slot).memory.bytes != layout_.capacity_of[block])) {
      slot = kNoSlot;
    }
  }
  if (slot == kNoSlot) return absl::OkStatus();
  return Keep(transfers_->Load(block, slot));
}

}  // namespace blockswap::offload
