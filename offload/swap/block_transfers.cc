// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/block_transfers.h"

#include <algorithm>
#include <utility>

#include "offload/base/status_macros.h"
#include "offload/plan/slot_layout.h"

namespace blockswap::offload {

absl::StatusOr<std::unique_ptr<BlockTransfers>> BlockTransfers::Create(
    DeviceRuntime* device, const SwapPlan* plan, const std::vector<BlockProfile>* blocks,
    SlotRing* ring) {
  std::unique_ptr<BlockTransfers> transfers(new BlockTransfers(device, plan, blocks, ring));
  BLOCKSWAP_RETURN_IF_ERROR(transfers->TakeHostMemory());
  BLOCKSWAP_RETURN_IF_ERROR(transfers->CreateEvents());
  return transfers;
}

BlockTransfers::~BlockTransfers() {
  staging_.reset();
  // Nothing may touch the buffers after this; what a failed device says was reported when it
  // failed.
  device_->SynchronizeStream(Stream::kHostToDevice).IgnoreError();
  device_->SynchronizeStream(Stream::kDeviceToHost).IgnoreError();
  for (EventId event : events_) device_->DestroyEvent(event);
}

absl::Status BlockTransfers::TakeHostMemory() {
  buffer_of_.assign(blocks_->size(), -1);
  const std::vector<int64_t> sizes = LayoutSlots(*plan_, *blocks_).host_buffers;
  if (sizes.empty()) return absl::OkStatus();
  int num_buffers = 0;
  for (int block : plan_->streamed_blocks()) buffer_of_[block] = num_buffers++;
  for (int spare = num_buffers; spare < static_cast<int>(sizes.size()); ++spare) {
    free_buffers_.push_back(spare);
  }
  const int num_staging = exchange() ? 2 : plan_->slots;
  const bool may_stage = device_->copies_need_pinned_memory();
  const HostMasters::Sharing sharing{
      .one_tier = exchange(), .reserved_bytes = may_stage ? num_staging * plan_->slot_bytes : 0};
  BLOCKSWAP_ASSIGN_OR_RETURN(masters_,
                             HostMasters::Create(device_, sizes, plan_->pin_policy, sharing));
  if (may_stage && masters_.has_pageable()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(staging_,
                               StagingPool::Create(device_, num_staging, plan_->slot_bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<EventId> BlockTransfers::NewEvent() {
  BLOCKSWAP_ASSIGN_OR_RETURN(const EventId event, device_->CreateEvent());
  events_.push_back(event);
  return event;
}

absl::Status BlockTransfers::CreateEvents() {
  for (int i = 0; i < ring_->size(); ++i) {
    BLOCKSWAP_ASSIGN_OR_RETURN(ring_->slot(i).ready, NewEvent());
    BLOCKSWAP_ASSIGN_OR_RETURN(ring_->slot(i).released, NewEvent());
  }
  buffers_.resize(static_cast<size_t>(masters_.size()));
  if (!exchange()) return absl::OkStatus();
  BLOCKSWAP_ASSIGN_OR_RETURN(left_, NewEvent());
  for (BufferState& buffer : buffers_) {
    BLOCKSWAP_ASSIGN_OR_RETURN(buffer.read, NewEvent());
  }
  return absl::OkStatus();
}

std::byte* BlockTransfers::HostData(int block) const {
  const int buffer = buffer_of_[block];
  return buffer < 0 ? nullptr : masters_.buffer(buffer).data;
}

int64_t BlockTransfers::locked_bytes() const {
  return masters_.locked_bytes() + (staging_ == nullptr ? 0 : staging_->locked_bytes());
}

absl::Status BlockTransfers::Load(int block, int slot_index) {
  Slot& slot = ring_->slot(slot_index);
  const int leaving = exchange() ? slot.block : kNoBlock;
  const int free_buffer = leaving == kNoBlock ? -1 : TakeFreeBuffer(slot.memory.bytes);
  // A staged load still in the worker's hands must reach the lane before another one into the same
  // slot.
  if (slot.staging_ticket != 0) {
    BLOCKSWAP_RETURN_IF_ERROR(staging_->Join(slot.staging_ticket));
    slot.staging_ticket = 0;
  }
  ring_->Assign(slot_index, block);
  const bool staged =
      staging_ != nullptr && masters_.buffer(buffer_of_[block]).tier == HostTier::kPageable;
  if (staged) {
    LoadStaged(block, slot, leaving, free_buffer);
  } else {
    BLOCKSWAP_RETURN_IF_ERROR(LoadDirect(block, slot, leaving, free_buffer));
  }
  slot.was_loaded = true;
  counters_.h2d_bytes += bytes(block);
  ++counters_.h2d_transfers;
  if (leaving != kNoBlock) {
    counters_.d2h_bytes += bytes(leaving);
    ++counters_.d2h_transfers;
  }
  if (exchange()) MoveHomes(block, leaving, free_buffer);
  return absl::OkStatus();
}

int BlockTransfers::TakeFreeBuffer(int64_t capacity) {
  const auto fits = [&](int buffer) { return masters_.buffer(buffer).bytes == capacity; };
  // There is one at rest: a block only takes the place of another of its capacity.
  const auto found = std::find_if(free_buffers_.begin(), free_buffers_.end(), fits);
  const int buffer = *found;
  free_buffers_.erase(found);
  return buffer;
}

void BlockTransfers::MoveHomes(int block, int leaving, int free_buffer) {
  if (leaving != kNoBlock) buffer_of_[leaving] = free_buffer;
  free_buffers_.push_back(buffer_of_[block]);
  buffer_of_[block] = -1;
}

absl::Status BlockTransfers::WriteBack(int leaving, Slot& slot, int free_buffer) {
  BufferState& buffer = buffers_[free_buffer];
  // d2h waits: h2d has filled the slot, compute is past it, h2d has read what the buffer held.
  if (slot.was_loaded) {
    BLOCKSWAP_RETURN_IF_ERROR(device_->Wait(Stream::kDeviceToHost, slot.ready));
  }
  if (slot.was_released) {
    BLOCKSWAP_RETURN_IF_ERROR(device_->Wait(Stream::kDeviceToHost, slot.released));
  }
  if (buffer.was_read) {
    BLOCKSWAP_RETURN_IF_ERROR(device_->Wait(Stream::kDeviceToHost, buffer.read));
  }
  const DeviceSpan source{slot.memory.data, bytes(leaving)};
  BLOCKSWAP_RETURN_IF_ERROR(device_->CopyToHost(masters_.buffer(free_buffer).data, source));
  BLOCKSWAP_RETURN_IF_ERROR(device_->Record(left_, Stream::kDeviceToHost));
  // h2d waits: d2h has taken the block out of the slot.
  return device_->Wait(Stream::kHostToDevice, left_);
}

absl::Status BlockTransfers::LoadDirect(int block, Slot& slot, int leaving, int free_buffer) {
  if (leaving != kNoBlock) {
    BLOCKSWAP_RETURN_IF_ERROR(WriteBack(leaving, slot, free_buffer));
  } else if (slot.was_released) {
    // h2d waits: compute is past the slot's last reader.
    BLOCKSWAP_RETURN_IF_ERROR(device_->Wait(Stream::kHostToDevice, slot.released));
  }
  const int source = buffer_of_[block];
  BLOCKSWAP_RETURN_IF_ERROR(
      device_->CopyToDevice({slot.memory.data, bytes(block)}, masters_.buffer(source).data));
  BLOCKSWAP_RETURN_IF_ERROR(device_->Record(slot.ready, Stream::kHostToDevice));
  if (exchange()) {
    BLOCKSWAP_RETURN_IF_ERROR(device_->Record(buffers_[source].read, Stream::kHostToDevice));
    buffers_[source].was_read = true;
  }
  return absl::OkStatus();
}

void BlockTransfers::LoadStaged(int block, Slot& slot, int leaving, int free_buffer) {
  StagedLoad load;
  // Pageable buffers are touched by the staging thread only, in order: they need no events.
  if (leaving != kNoBlock) {
    load.write_back.destination = masters_.buffer(free_buffer).data;
    load.write_back.source = {slot.memory.data, bytes(leaving)};
    load.write_back.loaded = slot.was_loaded ? slot.ready : kNoEvent;
    load.write_back.released = slot.was_released ? slot.released : kNoEvent;
  }
  load.source = masters_.buffer(buffer_of_[block]).data;
  load.destination = {slot.memory.data, bytes(block)};
  load.released = slot.was_released ? slot.released : kNoEvent;
  load.ready = slot.ready;
  slot.staging_ticket = staging_->Submit(load);
  ++counters_.staged_transfers;
}

bool BlockTransfers::IsReady(int slot_index) const {
  const Slot& slot = ring_->slot(slot_index);
  if (slot.staging_ticket != 0 && !staging_->IsQueued(slot.staging_ticket)) return false;
  return !slot.was_loaded || device_->IsComplete(slot.ready);
}

absl::Status BlockTransfers::AwaitOnCompute(int slot_index) {
  Slot& slot = ring_->slot(slot_index);
  if (slot.staging_ticket != 0) {
    BLOCKSWAP_RETURN_IF_ERROR(staging_->Join(slot.staging_ticket));
    slot.staging_ticket = 0;
  }
  if (!slot.was_loaded) return absl::OkStatus();
  return device_->Wait(Stream::kCompute, slot.ready);
}

absl::Status BlockTransfers::RecordRelease(int slot_index) {
  Slot& slot = ring_->slot(slot_index);
  BLOCKSWAP_RETURN_IF_ERROR(device_->Record(slot.released, Stream::kCompute));
  slot.was_released = true;
  return absl::OkStatus();
}

absl::Status BlockTransfers::Drain() {
  if (staging_ != nullptr) BLOCKSWAP_RETURN_IF_ERROR(staging_->JoinAll());
  BLOCKSWAP_RETURN_IF_ERROR(device_->SynchronizeStream(Stream::kHostToDevice));
  return device_->SynchronizeStream(Stream::kDeviceToHost);
}

}  // namespace blockswap::offload
