// SPDX-License-Identifier: Apache-2.0
// Checking weights where they are against what was loaded (verify_weights).
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "offload/swap/block_swapper_impl.h"

namespace blockswap::offload {

absl::Status BlockSwapper::Impl::RecordMaster(int block) {
  if (checks_ == nullptr) return absl::OkStatus();
  const size_t bytes = static_cast<size_t>(blocks_[block].bytes);
  if (const std::byte* const data = transfers_->HostData(block); data != nullptr) {
    checks_->Record(block, absl::MakeConstSpan(data, bytes));
    return absl::OkStatus();
  }
  scratch_.resize(bytes);
  BLOCKSWAP_RETURN_IF_ERROR(transfers_->ReadMaster(block, absl::MakeSpan(scratch_)));
  checks_->Record(block, scratch_);
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const std::byte>> BlockSwapper::Impl::Look(DeviceSpan span,
                                                                     EventId ready) {
  // The host waits: h2d has brought the bytes.
  if (ready != kNoEvent) BLOCKSWAP_RETURN_IF_ERROR(device_->Synchronize(ready));
  const size_t bytes = static_cast<size_t>(span.bytes);
  if (device_->device_memory_is_host_visible()) return absl::MakeConstSpan(span.data, bytes);
  scratch_.resize(bytes);
  BLOCKSWAP_RETURN_IF_ERROR(device_->CopyToHost(scratch_.data(), span));
  BLOCKSWAP_RETURN_IF_ERROR(device_->SynchronizeStream(Stream::kDeviceToHost));
  return absl::MakeConstSpan(scratch_);
}

absl::Status BlockSwapper::Impl::CheckSlot(int slot_index) {
  const Slot& slot = ring_.slot(slot_index);
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const absl::Span<const std::byte> bytes,
      Look({slot.memory.data, blocks_[slot.block].bytes}, slot.was_loaded ? slot.ready : kNoEvent));
  return checks_->CheckBlock(slot.block, bytes,
                             absl::StrCat("slot ", slot_index, ", generation ", slot.generation));
}

absl::Status BlockSwapper::Impl::CheckUnit(int unit) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const absl::Span<const std::byte> bytes,
                             Look(layers_->UnitSpan(unit), layers_->ready_event(unit)));
  const LayerUnit& named = plan_.window.units[static_cast<size_t>(unit)];
  return checks_->CheckLayer(named.block, named.layer, bytes, "the window");
}

absl::Status BlockSwapper::Impl::CheckRest(int block) {
  for (int tensor = 0; tensor < static_cast<int>(blocks_[block].tensors.size()); ++tensor) {
    if (layers_->UnitOf(block, tensor) >= 0) continue;
    BLOCKSWAP_ASSIGN_OR_RETURN(const absl::Span<const std::byte> bytes,
                               Look(layers_->Rest(block, tensor), kNoEvent));
    BLOCKSWAP_RETURN_IF_ERROR(checks_->CheckTensor(block, tensor, bytes, "device memory"));
  }
  return absl::OkStatus();
}

absl::Status BlockSwapper::Impl::CheckEverywhere(int block) {
  if (!InSlots(block)) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const absl::Span<const std::byte> bytes,
                               Look(resident_of_[block], kNoEvent));
    BLOCKSWAP_RETURN_IF_ERROR(checks_->CheckBlock(block, bytes, "device memory"));
  }
  if (const int slot = ring_.SlotOf(block); slot != kNoSlot) {
    BLOCKSWAP_RETURN_IF_ERROR(CheckSlot(slot));
  }
  if (StreamsLayers(block)) BLOCKSWAP_RETURN_IF_ERROR(CheckRest(block));
  const std::byte* const data = transfers_->HostData(block);
  if (data == nullptr) return absl::OkStatus();
  return checks_->CheckBlock(
      block, absl::MakeConstSpan(data, static_cast<size_t>(blocks_[block].bytes)), "its master");
}

absl::Status BlockSwapper::Impl::VerifyAll() {
  BLOCKSWAP_RETURN_IF_ERROR(failure_);
  if (checks_ == nullptr) {
    return absl::FailedPreconditionError(
        "no checksums of the weights were taken: set verify_weights");
  }
  BLOCKSWAP_RETURN_IF_ERROR(Drain());
  BLOCKSWAP_RETURN_IF_ERROR(Keep(device_->SynchronizeStream(Stream::kCompute)));
  for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
    if (!writing_[block]) BLOCKSWAP_RETURN_IF_ERROR(CheckEverywhere(block));
  }
  if (layers_ == nullptr) return absl::OkStatus();
  for (int unit : layers_->units_in_window()) BLOCKSWAP_RETURN_IF_ERROR(CheckUnit(unit));
  return absl::OkStatus();
}

}  // namespace blockswap::offload
