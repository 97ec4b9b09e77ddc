// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/block_transfers.h"

#include <algorithm>
#include <utility>

#include "offload/base/status_macros.h"
#include "offload/plan/slot_layout.h"

namespace blockswap::offload {
namespace {

StagingNeeds NeedsOf(const SwapPlan& plan, const std::vector<BlockProfile>& blocks) {
  StagingNeeds needs{NumStagingBuffers(plan), plan.slot_bytes};
  if (plan.granularity == Granularity::kLayer && !plan.window.units.empty()) {
    needs.buffers = kLayerStagingBuffers;
    for (const LayerUnit& unit : plan.window.units) {
      needs.bytes = std::max(needs.bytes, blocks[unit.block].layers[unit.layer].bytes);
    }
  }
  // A resident of a base that trains comes up again after each change.
  if (plan.base_trains) {
    needs.buffers = std::max(needs.buffers, 1);
    for (const BlockProfile& block : blocks) needs.bytes = std::max(needs.bytes, block.bytes);
  }
  return needs;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockTransfers>> BlockTransfers::Create(
    DeviceRuntime* device, const SwapPlan& plan, const std::vector<BlockProfile>* blocks,
    SlotRing* ring, const MasterSources& sources) {
  std::unique_ptr<BlockTransfers> transfers(
      new BlockTransfers(device, plan, blocks, ring, sources));
  BLOCKSWAP_RETURN_IF_ERROR(transfers->TakeHostMemory(plan));
  BLOCKSWAP_RETURN_IF_ERROR(transfers->PrepareFor(plan, ring->size()));
  if (transfers->exchange_) {
    BLOCKSWAP_ASSIGN_OR_RETURN(transfers->left_, transfers->NewEvent());
  }
  transfers->AssignEvents();
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

MasterSpec BlockTransfers::SpecOf(int block, const SwapPlan& plan) const {
  // What will be written to belongs to this job alone.
  const bool is_private = exchange_ || base_trains_;
  return {.bytes = bytes(block),
          .block = is_private ? kNoContent : block,
          .stays_in_file = !is_private && plan.blocks[block].tier == HostTier::kFile &&
                           sources_.reader != nullptr};
}

absl::Status BlockTransfers::TakeHostMemory(const SwapPlan& plan) {
  buffer_of_.assign(blocks_->size(), -1);
  const std::vector<int64_t> sizes = LayoutSlots(plan, *blocks_).host_buffers;
  std::vector<MasterSpec> specs;
  for (int block : plan.mastered_blocks()) {
    buffer_of_[block] = static_cast<int>(specs.size());
    specs.push_back(SpecOf(block, plan));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i == specs.size()) {
      free_buffers_.push_back(static_cast<int>(i));
      specs.emplace_back();
    }
    specs[i].bytes = sizes[i];
  }
  const StagingNeeds needs = NeedsOf(plan, *blocks_);
  const HostMasters::Sharing sharing{.one_tier = exchange_,
                                     .reserved_bytes = device_->copies_need_pinned_memory()
                                                           ? needs.buffers * needs.bytes
                                                           : int64_t{0},
                                     .shared = sources_.shared};
  BLOCKSWAP_ASSIGN_OR_RETURN(masters_,
                             HostMasters::Create(device_, specs, plan.pin_policy, sharing));
  return GrowBufferStates();
}

absl::Status BlockTransfers::GrowBufferStates() {
  while (static_cast<int>(buffers_.size()) < masters_.size()) {
    BufferState buffer;
    if (exchange_ || base_trains_) {
      BLOCKSWAP_ASSIGN_OR_RETURN(buffer.read, NewEvent());
    }
    buffers_.push_back(buffer);
  }
  return absl::OkStatus();
}

absl::Status BlockTransfers::FillMaster(int block, const BlockReader& reader) {
  const int buffer = buffer_of_[block];
  if (!exchange_ && !base_trains_) return masters_.Fill(buffer, reader);
  return reader(block,
                absl::MakeSpan(masters_.buffer(buffer).data, static_cast<size_t>(bytes(block))));
}

absl::Status BlockTransfers::ReadMaster(int block, absl::Span<std::byte> destination) const {
  const HostBuffer& buffer = masters_.buffer(buffer_of_[block]);
  if (buffer.data == nullptr) return sources_.reader(block, destination);
  std::copy_n(buffer.data, destination.size(), destination.data());
  return absl::OkStatus();
}

bool BlockTransfers::SuitsMaster(int block, const SwapPlan& plan) const {
  const int buffer = buffer_of_[block];
  return buffer >= 0 &&
         (masters_.buffer(buffer).tier == HostTier::kFile) == SpecOf(block, plan).stays_in_file;
}

absl::StatusOr<MasterChange> BlockTransfers::AddMaster(int block, const SwapPlan& plan) {
  const MasterChange change{.block = block, .before = buffer_of_[block]};
  BLOCKSWAP_ASSIGN_OR_RETURN(const int added, masters_.Add(SpecOf(block, plan)));
  buffer_of_[block] = added;
  const absl::Status grown = GrowBufferStates();
  if (!grown.ok()) {
    UndoMaster(change);
    return grown;
  }
  return change;
}

void BlockTransfers::UndoMaster(const MasterChange& change) {
  masters_.Remove(buffer_of_[change.block]);
  buffer_of_[change.block] = change.before;
}

void BlockTransfers::RemoveMaster(int block) {
  if (buffer_of_[block] >= 0) masters_.Remove(buffer_of_[block]);
  buffer_of_[block] = -1;
}

bool BlockTransfers::NeedsStaging() const {
  return masters_.bytes_of(HostTier::kFile) > 0 ||
         (device_->copies_need_pinned_memory() && masters_.has_pageable());
}

absl::Status BlockTransfers::PrepareFor(const SwapPlan& plan, int num_slots) {
  while (static_cast<int>(slot_events_.size()) < num_slots) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const EventId ready, NewEvent());
    BLOCKSWAP_ASSIGN_OR_RETURN(const EventId released, NewEvent());
    slot_events_.emplace_back(ready, released);
  }
  if (!plan.window.units.empty() && layers_released_ == kNoEvent) {
    BLOCKSWAP_ASSIGN_OR_RETURN(layers_released_, NewEvent());
  }
  while (layer_events_.size() < plan.window.units.size()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const EventId ready, NewEvent());
    layer_events_.push_back(ready);
  }
  const StagingNeeds needs = NeedsOf(plan, *blocks_);
  if (!NeedsStaging() || needs.buffers == 0 ||
      (staging_ != nullptr && needs.buffers <= staging_size_.buffers &&
       needs.bytes <= staging_size_.bytes)) {
    return absl::OkStatus();
  }
  const PinnedArena::Lock lock =
      device_->copies_need_pinned_memory() ? PinnedArena::Lock::kYes : PinnedArena::Lock::kNo;
  BLOCKSWAP_ASSIGN_OR_RETURN(
      std::unique_ptr<StagingPool> staging,
      StagingPool::Create(device_, needs.buffers, needs.bytes, lock, sources_.reader));
  if (staging_ != nullptr) BLOCKSWAP_RETURN_IF_ERROR(staging_->JoinAll());
  staging_ = std::move(staging);
  staging_size_ = needs;
  // Tickets count per pool; all of the old one are over.
  for (BufferState& buffer : buffers_) buffer.ticket = 0;
  for (int i = 0; i < ring_->size(); ++i) ring_->slot(i).staging_ticket = 0;
  return absl::OkStatus();
}

void BlockTransfers::AssignEvents() {
  for (int i = 0; i < ring_->size(); ++i) {
    ring_->slot(i).ready = slot_events_[static_cast<size_t>(i)].first;
    ring_->slot(i).released = slot_events_[static_cast<size_t>(i)].second;
  }
}

absl::StatusOr<EventId> BlockTransfers::NewEvent() {
  BLOCKSWAP_ASSIGN_OR_RETURN(const EventId event, device_->CreateEvent());
  events_.push_back(event);
  return event;
}

std::byte* BlockTransfers::HostData(int block) const {
  const int buffer = buffer_of_[block];
  return buffer < 0 ? nullptr : masters_.buffer(buffer).data;
}

int64_t BlockTransfers::host_bytes() const {
  const bool reads_file = masters_.bytes_of(HostTier::kFile) > 0;
  return masters_.bytes() + (reads_file && staging_ != nullptr ? staging_->bytes() : 0);
}

int64_t BlockTransfers::locked_bytes() const {
  return masters_.locked_bytes() + (staging_ == nullptr ? 0 : staging_->locked_bytes());
}

absl::Status BlockTransfers::Load(int block, int slot_index) {
  Slot& slot = ring_->slot(slot_index);
  const int leaving = exchange_ ? slot.block : kNoBlock;
  // A staged load still in the worker's hands must reach the lane before another one into the same
  // slot.
  if (slot.staging_ticket != 0) {
    BLOCKSWAP_RETURN_IF_ERROR(staging_->Join(slot.staging_ticket));
    slot.staging_ticket = 0;
  }
  ring_->Assign(slot_index, block);
  if (exchange_) {
    BLOCKSWAP_RETURN_IF_ERROR(LoadExchange(block, slot, leaving));
  } else {
    BLOCKSWAP_ASSIGN_OR_RETURN(slot.staging_ticket,
                               CopyUp({.block = block,
                                       .destination = {slot.memory.data, bytes(block)},
                                       .released = slot.was_released ? slot.released : kNoEvent,
                                       .ready = slot.ready}));
  }
  slot.was_loaded = true;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> BlockTransfers::CopyUp(const UpCopy& copy) {
  const int index = buffer_of_[copy.block];
  BufferState& buffer = buffers_[index];
  std::byte* const data = masters_.buffer(index).data;
  counters_.h2d_bytes += copy.destination.bytes;
  ++counters_.h2d_transfers;
  if (IsStaged(index)) {
    StagedLoad load;
    load.source = data == nullptr ? nullptr : data + copy.offset;
    load.block = copy.block;
    load.destination = copy.destination;
    load.released = copy.released;
    load.ready = copy.ready;
    ++counters_.staged_transfers;
    buffer.ticket = staging_->Submit(load);
    return buffer.ticket;
  }
  if (copy.released != kNoEvent) {
    // h2d waits: compute is past the last reader of what is there.
    BLOCKSWAP_RETURN_IF_ERROR(device_->Wait(Stream::kHostToDevice, copy.released));
  }
  BLOCKSWAP_RETURN_IF_ERROR(device_->CopyToDevice(copy.destination, data + copy.offset));
  BLOCKSWAP_RETURN_IF_ERROR(device_->Record(copy.ready, Stream::kHostToDevice));
  if (base_trains_) {
    BLOCKSWAP_RETURN_IF_ERROR(device_->Record(buffer.read, Stream::kHostToDevice));
    buffer.was_read = true;
  }
  return uint64_t{0};
}

bool BlockTransfers::IsStagedQueued(uint64_t ticket) const {
  return ticket == 0 || staging_->IsQueued(ticket);
}

absl::Status BlockTransfers::JoinStaged(uint64_t ticket) {
  return ticket == 0 ? absl::OkStatus() : staging_->Join(ticket);
}

absl::Status BlockTransfers::AwaitMasterUnread(int block) {
  BufferState& buffer = buffers_[buffer_of_[block]];
  // The staging thread has copied the master's bytes by the time its load is queued.
  BLOCKSWAP_RETURN_IF_ERROR(JoinStaged(buffer.ticket));
  if (!buffer.was_read) return absl::OkStatus();
  return device_->Synchronize(buffer.read);
}

absl::Status BlockTransfers::LoadExchange(int block, Slot& slot, int leaving) {
  const int free_buffer = leaving == kNoBlock ? -1 : TakeFreeBuffer(slot.memory.bytes);
  if (IsStaged(buffer_of_[block])) {
    LoadStaged(block, slot, leaving, free_buffer);
  } else {
    BLOCKSWAP_RETURN_IF_ERROR(LoadDirect(block, slot, leaving, free_buffer));
  }
  counters_.h2d_bytes += bytes(block);
  ++counters_.h2d_transfers;
  if (leaving != kNoBlock) {
    counters_.d2h_bytes += bytes(leaving);
    ++counters_.d2h_transfers;
  }
  MoveHomes(block, leaving, free_buffer);
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
  BLOCKSWAP_RETURN_IF_ERROR(device_->Record(buffers_[source].read, Stream::kHostToDevice));
  buffers_[source].was_read = true;
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
