// SPDX-License-Identifier: Apache-2.0
// Memory and first contents of a BlockSwapper.
#include <algorithm>
#include <utility>

#include "offload/base/status_macros.h"
#include "offload/swap/block_swapper_impl.h"

namespace blockswap::offload {

BlockSwapper::Impl::Impl(DeviceRuntime* device, SwapPlan plan, std::vector<BlockProfile> blocks)
    : device_(device),
      plan_(std::move(plan)),
      blocks_(std::move(blocks)),
      layout_(LayoutSlots(plan_, blocks_)),
      training_(&plan_.training, PassKind::kTraining, static_cast<int>(blocks_.size())),
      forward_only_(&plan_.forward_only, PassKind::kForwardOnly, static_cast<int>(blocks_.size())),
      resident_of_(blocks_.size()),
      ring_(static_cast<int>(blocks_.size())) {
  stall_seen_ = device->compute_stall();
}

BlockSwapper::Impl::~Impl() {
  transfers_.reset();  // drains the copy streams
  // Kernels may still read slots that are about to be unmapped.
  device_->SynchronizeStream(Stream::kCompute).IgnoreError();  // nothing is left to protect
  if (read_event_ != kNoEvent) device_->DestroyEvent(read_event_);
}

absl::Status BlockSwapper::Impl::TakeMemory() {
  const bool all_in_slots = plan_.mode == TransferMode::kExchange && plan_.slots > 0;
  int64_t resident_bytes = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!all_in_slots && plan_.blocks[i].residence == Residence::kResident) {
      resident_bytes += blocks_[i].bytes;
    }
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(
      residents_, DeviceArena::Create(device_, resident_bytes, MemoryTag::kResidentBlocks));
  BLOCKSWAP_ASSIGN_OR_RETURN(slots_arena_,
                             DeviceArena::Create(device_, layout_.slot_bytes(), MemoryTag::kRing));
  int64_t offset = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (all_in_slots || plan_.blocks[i].residence == Residence::kStreamed) continue;
    resident_of_[i] = residents_.Sub(offset, blocks_[i].bytes);
    offset += blocks_[i].bytes;
  }
  offset = 0;
  for (int64_t bytes : layout_.slots) {
    ring_.AddSlot({.memory = slots_arena_.Sub(offset, bytes)});
    offset += bytes;
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(read_event_, device_->CreateEvent());
  BLOCKSWAP_ASSIGN_OR_RETURN(transfers_, BlockTransfers::Create(device_, &plan_, &blocks_, &ring_));
  return absl::OkStatus();
}

absl::Status BlockSwapper::Impl::ReadResident(int block, DeviceSpan destination,
                                              const BlockReader& reader, PinnedArena& staging) {
  const size_t bytes = static_cast<size_t>(blocks_[block].bytes);
  if (device_->device_memory_is_host_visible()) {
    return reader(block, absl::MakeSpan(destination.data, bytes));
  }
  if (staging.bytes() < blocks_[block].bytes) {
    int64_t largest = 0;
    for (const BlockProfile& profile : blocks_) largest = std::max(largest, profile.bytes);
    BLOCKSWAP_ASSIGN_OR_RETURN(staging,
                               PinnedArena::Create(device_, largest, PinnedArena::Lock::kNo));
  }
  BLOCKSWAP_RETURN_IF_ERROR(reader(block, absl::MakeSpan(staging.data(), bytes)));
  BLOCKSWAP_RETURN_IF_ERROR(
      device_->CopyToDevice({destination.data, blocks_[block].bytes}, staging.data()));
  return device_->SynchronizeStream(Stream::kHostToDevice);
}

absl::Status BlockSwapper::Impl::ReadBlocks(const BlockReader& reader) {
  PinnedArena staging;  // one block, for devices the host cannot write to
  size_t next_slot = 0;
  for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
    if (!InSlots(block)) {
      BLOCKSWAP_RETURN_IF_ERROR(ReadResident(block, resident_of_[block], reader, staging));
    } else if (std::byte* home = transfers_->HostData(block); home != nullptr) {
      BLOCKSWAP_RETURN_IF_ERROR(
          reader(block, absl::MakeSpan(home, static_cast<size_t>(blocks_[block].bytes))));
    } else {
      // Exchange mode: a block that starts on the device has no home on the host.
      const int slot = static_cast<int>(next_slot++);
      ring_.Assign(slot, block);
      BLOCKSWAP_RETURN_IF_ERROR(ReadResident(block, ring_.slot(slot).memory, reader, staging));
    }
  }
  return absl::OkStatus();
}

absl::Status BlockSwapper::Impl::FillSlots() {
  BLOCKSWAP_RETURN_IF_ERROR(RestoreInitial());
  return failure_;
}

}  // namespace blockswap::offload
