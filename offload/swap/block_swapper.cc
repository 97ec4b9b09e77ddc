// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/block_swapper.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "offload/swap/block_swapper_impl.h"

namespace blockswap::offload {

absl::StatusOr<std::unique_ptr<BlockSwapper>> BlockSwapper::Create(DeviceRuntime* device,
                                                                   SwapPlan plan,
                                                                   std::vector<BlockProfile> blocks,
                                                                   const BlockReader& reader,
                                                                   const SwapperOptions& options) {
  BLOCKSWAP_RETURN_IF_ERROR(ValidatePlan(plan, blocks));
  auto impl = std::make_unique<Impl>(device, std::move(plan), std::move(blocks), reader, options);
  BLOCKSWAP_RETURN_IF_ERROR(impl->TakeMemory());
  BLOCKSWAP_RETURN_IF_ERROR(impl->ReadBlocks());
  BLOCKSWAP_RETURN_IF_ERROR(impl->FillSlots());
  return std::unique_ptr<BlockSwapper>(new BlockSwapper(std::move(impl)));
}

BlockSwapper::BlockSwapper(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BlockSwapper::~BlockSwapper() = default;

absl::Status BlockSwapper::Adopt(SwapPlan plan) { return impl_->Adopt(std::move(plan)); }
absl::StatusOr<absl::Span<std::byte>> BlockSwapper::MutableMaster(int block) {
  return impl_->MutableMaster(block);
}
absl::Status BlockSwapper::MasterChanged(int block) { return impl_->MasterChanged(block); }
absl::Status BlockSwapper::VerifyAll() { return impl_->VerifyAll(); }
absl::Status BlockSwapper::BeginPass(PassKind kind) { return impl_->BeginPass(kind); }
absl::StatusOr<BlockLease> BlockSwapper::Acquire(int block, Direction direction) {
  return impl_->Acquire(this, block, direction);
}
absl::Status BlockSwapper::Drain() { return impl_->Drain(); }
absl::Status BlockSwapper::ReadBlock(int block, absl::Span<std::byte> destination) {
  return impl_->ReadBlock(block, destination);
}
const SwapPlan& BlockSwapper::plan() const { return impl_->plan(); }
SwapStats BlockSwapper::stats() const { return impl_->stats(); }

bool BlockSwapper::Impl::InSlots(int block) const { return resident_of_[block].data == nullptr; }

absl::Status BlockSwapper::Impl::Keep(const absl::Status& status) {
  failure_.Update(status);
  return failure_;
}

absl::Status BlockSwapper::Impl::BeginPass(PassKind kind) {
  BLOCKSWAP_RETURN_IF_ERROR(failure_);
  if (leases_ > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("a pass cannot begin while ", leases_, " blocks are leased"));
  }
  if (kind != pass_) BLOCKSWAP_RETURN_IF_ERROR(Drain());
  pass_ = kind;
  cursor().Reset();
  return Keep(RestoreInitial());
}

// A pass that was left early, or visits out of order, leave other blocks in the slots than the
// schedule starts from.
absl::Status BlockSwapper::Impl::RestoreInitial() {
  if (layers_ != nullptr) return layers_->BeginPass(pass_);
  const std::vector<int>& initial = schedule().initial;
  for (int block : initial) {
    if (ring_.SlotOf(block) != kNoSlot || writing_[block]) continue;
    const int slot = ring_.Victim(layout_.capacity_of[block], [&](int other) {
      return absl::c_linear_search(initial, other) ? -2 : cursor().DistanceToNextUse(other);
    });
    if (slot == kNoSlot) continue;
    BLOCKSWAP_RETURN_IF_ERROR(transfers_->Load(block, slot));
  }
  return absl::OkStatus();
}

absl::Status BlockSwapper::Impl::RunTransfers(int visit) {
  for (const Transfer& transfer : cursor().TransfersAfter(visit)) {
    if (ring_.SlotOf(transfer.load) != kNoSlot) continue;
    if (writing_[transfer.load]) {
      deferred_evict_[transfer.load] = transfer.evict;
      continue;
    }
    const int slot = ring_.SlotOf(transfer.evict);
    if (slot == kNoSlot || ring_.slot(slot).leases > 0) continue;
    if (ring_.slot(slot).memory.bytes != layout_.capacity_of[transfer.load]) continue;
    BLOCKSWAP_RETURN_IF_ERROR(transfers_->Load(transfer.load, slot));
  }
  return absl::OkStatus();
}

absl::Status BlockSwapper::Impl::LoadOnDemand(int block) {
  const int slot = ring_.Victim(layout_.capacity_of[block],
                                [&](int other) { return cursor().DistanceToNextUse(other); });
  if (slot == kNoSlot) {
    return absl::FailedPreconditionError(
        absl::StrCat("block ", block, " is in no slot and every slot that could take its ",
                     blocks_[block].bytes, " bytes is leased: ", leases_, " leases, ", ring_.size(),
                     " slots; end a lease first or raise ring_size"));
  }
  return Keep(transfers_->Load(block, slot));
}

absl::StatusOr<BlockLease> BlockSwapper::Impl::Acquire(BlockSwapper* self, int block,
                                                       Direction direction) {
  BLOCKSWAP_RETURN_IF_ERROR(failure_);
  if (!InRange(block)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no block ", block, ", the model has ", blocks_.size()));
  }
  if (writing_[block]) {
    return absl::FailedPreconditionError(absl::StrCat(
        "block ", block, " was asked for while its master is being changed: end that first"));
  }
  const VisitCursor::Step step = cursor().Advance(block, direction);
  // A few blocks passed over (a skipped layer) still let their transfers go; a pass that starts
  // over does not.
  if (step.num_skipped <= ring_.size()) {
    for (int i = 0; i < step.num_skipped; ++i) {
      const int skipped = (step.first_skipped + i) % cursor().num_visits();
      BLOCKSWAP_RETURN_IF_ERROR(Keep(RunTransfers(skipped)));
    }
  }
  direction_ = direction;
  if (!InSlots(block) || StreamsLayers(block)) {
    ++leases_;
    return BlockLease(self, block, kNoSlot, /*generation=*/0, step.visit);
  }
  int slot = ring_.SlotOf(block);
  if (slot == kNoSlot) {
    BLOCKSWAP_RETURN_IF_ERROR(LoadOnDemand(block));
    slot = ring_.SlotOf(block);
    ++counters_.misses;
  } else if (!ring_.slot(slot).permanent) {
    ++(transfers_->IsReady(slot) ? counters_.hits : counters_.late);
  }
  BLOCKSWAP_RETURN_IF_ERROR(Keep(transfers_->AwaitOnCompute(slot)));
  CountStall(direction);
  if (checks_ != nullptr) BLOCKSWAP_RETURN_IF_ERROR(Keep(CheckSlot(slot)));
  ++ring_.slot(slot).leases;
  ++leases_;
  return BlockLease(self, block, slot, ring_.slot(slot).generation, step.visit);
}

void BlockSwapper::Impl::Release(int slot, int visit) {
  --leases_;
  if (slot != kNoSlot) {
    --ring_.slot(slot).leases;
    if (failure_.ok()) Keep(transfers_->RecordRelease(slot)).IgnoreError();  // next Acquire says
  }
  if (failure_.ok() && visit != kNoVisit) Keep(RunTransfers(visit)).IgnoreError();  // same
}

absl::StatusOr<DeviceSpan> BlockSwapper::Impl::Tensor(int block, int slot, uint64_t generation,
                                                      int index) const {
  const std::vector<TensorExtent>& tensors = blocks_[block].tensors;
  if (index < 0 || index >= static_cast<int>(tensors.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", block, " has ", tensors.size(), " tensors, asked for ", index));
  }
  if (StreamsLayers(block)) {
    if (layers_->UnitOf(block, index) < 0) return layers_->Rest(block, index);
    return absl::InternalError(absl::StrCat("tensor ", index, " of block ", block,
                                            " is on the device only while it is held"));
  }
  DeviceSpan span = resident_of_[block];
  if (slot != kNoSlot) {
    const Slot& held = ring_.slot(slot);
    if (held.generation != generation || held.block != block) {
      return absl::InternalError(absl::StrCat(
          "stale lease: block ", block, " was in slot ", slot, " at generation ", generation,
          ", the slot now holds block ", held.block, " at generation ", held.generation));
    }
    span = held.memory;
  }
  return DeviceSpan{span.data + tensors[index].offset, tensors[index].bytes};
}

absl::StatusOr<TensorLease> BlockSwapper::Impl::Hold(BlockSwapper* self, int block, int slot,
                                                     uint64_t generation, int index) {
  const bool known = index >= 0 && index < static_cast<int>(blocks_[block].tensors.size());
  const int unit = known && StreamsLayers(block) ? layers_->UnitOf(block, index) : -1;
  if (unit < 0) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const DeviceSpan span, Tensor(block, slot, generation, index));
    return TensorLease(span);
  }
  BLOCKSWAP_RETURN_IF_ERROR(failure_);
  const absl::Status held = layers_->Hold(unit);
  // No place beside what is held is the caller's to solve; anything else is the device's.
  if (held.code() == absl::StatusCode::kFailedPrecondition) return held;
  BLOCKSWAP_RETURN_IF_ERROR(Keep(held));
  CountStall(direction_);
  if (checks_ != nullptr) BLOCKSWAP_RETURN_IF_ERROR(Keep(CheckUnit(unit)));
  ++leases_;
  return TensorLease(self, layers_->Span(unit, index), unit);
}

void BlockSwapper::Impl::EndHold(int unit) {
  --leases_;
  if (failure_.ok()) Keep(layers_->EndHold(unit)).IgnoreError();  // the next call says
}

void BlockSwapper::Impl::CountStall(Direction direction) {
  const absl::Duration stall = device_->compute_stall();
  (direction == Direction::kForward ? counters_.forward_stall : counters_.backward_stall) +=
      stall - stall_seen_;
  stall_seen_ = stall;
}

absl::Status BlockSwapper::Impl::Drain() {
  BLOCKSWAP_RETURN_IF_ERROR(failure_);
  return Keep(transfers_->Drain());
}

absl::Status BlockSwapper::Impl::ReadBlock(int block, absl::Span<std::byte> destination) {
  if (!InRange(block) || static_cast<int64_t>(destination.size()) != blocks_[block].bytes) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read block ", block, " of ",
                                                   blocks_.size(), " into ", destination.size(),
                                                   " bytes"));
  }
  BLOCKSWAP_RETURN_IF_ERROR(Drain());
  const int slot = ring_.SlotOf(block);
  // Where the base trains, the master is what is true.
  if (plan_.base_trains || (InSlots(block) && slot == kNoSlot)) {
    return transfers_->ReadMaster(block, destination);
  }
  const std::byte* data = slot == kNoSlot ? resident_of_[block].data : ring_.slot(slot).memory.data;
  const DeviceSpan source{const_cast<std::byte*>(data), blocks_[block].bytes};
  // d2h waits: compute may still write the block (trained weights).
  BLOCKSWAP_RETURN_IF_ERROR(Keep(device_->Record(read_event_, Stream::kCompute)));
  BLOCKSWAP_RETURN_IF_ERROR(Keep(device_->Wait(Stream::kDeviceToHost, read_event_)));
  BLOCKSWAP_RETURN_IF_ERROR(Keep(device_->CopyToHost(destination.data(), source)));
  return Keep(device_->SynchronizeStream(Stream::kDeviceToHost));
}

SwapStats BlockSwapper::Impl::stats() const {
  SwapStats stats = counters_;
  const TransferCounters& moved = transfers_->counters();
  stats.h2d_bytes = moved.h2d_bytes;
  stats.d2h_bytes = moved.d2h_bytes;
  stats.h2d_transfers = moved.h2d_transfers;
  stats.d2h_transfers = moved.d2h_transfers;
  stats.staged_transfers = moved.staged_transfers;
  const CopyCounters up = device_->copies(CopyDirection::kHostToDevice);
  const CopyCounters down = device_->copies(CopyDirection::kDeviceToHost);
  stats.h2d_link_bytes = up.bytes;
  stats.d2h_link_bytes = down.bytes;
  stats.h2d_busy = up.busy;
  stats.d2h_busy = down.busy;
  for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
    const int slot = InSlots(block) ? ring_.SlotOf(block) : kNoSlot;
    if (!InSlots(block)) {
      ++stats.blocks_on_device;
    } else if (slot == kNoSlot) {
      ++stats.blocks_on_host;
    } else {
      ++(transfers_->IsReady(slot) ? stats.blocks_on_device : stats.blocks_in_flight);
    }
  }
  stats.device_weight_bytes = homes_.bytes();
  stats.device_weight_bytes_peak = homes_.peak_bytes();
  stats.host_master_bytes = transfers_->host_bytes();
  stats.pinned_bytes = transfers_->locked_bytes();
  return stats;
}

}  // namespace blockswap::offload
