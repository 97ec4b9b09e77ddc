// SPDX-License-Identifier: Apache-2.0
// Memory and first contents of a BlockSwapper.
#include <algorithm>
#include <utility>

#include "offload/base/status_macros.h"
#include "offload/swap/block_swapper_impl.h"

namespace blockswap::offload {

BlockSwapper::Impl::Impl(DeviceRuntime* device, SwapPlan plan, std::vector<BlockProfile> blocks,
                         const BlockReader& reader, const SwapperOptions& options)
    : device_(device),
      plan_(std::move(plan)),
      blocks_(std::move(blocks)),
      reader_(reader),
      options_(options),
      layout_(LayoutSlots(plan_, blocks_)),
      training_(&plan_.training, PassKind::kTraining, static_cast<int>(blocks_.size())),
      forward_only_(&plan_.forward_only, PassKind::kForwardOnly, static_cast<int>(blocks_.size())),
      homes_(device),
      resident_of_(blocks_.size()),
      ring_(static_cast<int>(blocks_.size())),
      writing_(blocks_.size(), false),
      deferred_evict_(blocks_.size(), kNoBlock) {
  stall_seen_ = device->compute_stall();
  if (options_.verify_weights) checks_ = std::make_unique<WeightChecks>(&blocks_);
}

BlockSwapper::Impl::~Impl() {
  transfers_.reset();  // drains the copy streams
  // Kernels may still read slots that are about to be unmapped.
  device_->SynchronizeStream(Stream::kCompute).IgnoreError();  // nothing is left to protect
  if (read_event_ != kNoEvent) device_->DestroyEvent(read_event_);
}

std::vector<HomeDemand> BlockSwapper::Impl::Demand(const SwapPlan& plan,
                                                   const SlotLayout& layout) const {
  std::vector<HomeDemand> demand;
  const bool all_in_slots = plan.exchanges() && plan.slots > 0;
  for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
    if (all_in_slots || plan.blocks[block].residence == Residence::kStreamed) continue;
    demand.push_back({{HomeKind::kResident, block}, blocks_[block].bytes});
  }
  for (size_t slot = 0; slot < layout.slots.size(); ++slot) {
    demand.push_back({{HomeKind::kSlot, static_cast<int>(slot)}, layout.slots[slot]});
  }
  if (plan.granularity != Granularity::kLayer || plan.num_streamed() == 0) return demand;
  for (int block : plan.streamed_blocks()) {
    const int64_t bytes = LayoutRest(blocks_[block]).bytes;
    if (bytes > 0) demand.push_back({{HomeKind::kRest, block}, bytes});
  }
  demand.push_back({{HomeKind::kWindow, 0}, plan.window.bytes});
  return demand;
}

void BlockSwapper::Impl::BindLayers() {
  layers_.reset();
  if (plan_.granularity != Granularity::kLayer || plan_.num_streamed() == 0) return;
  LayerStream::Homes homes;
  homes.window = homes_.span({HomeKind::kWindow, 0});
  for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
    homes.rest.push_back(homes_.span({HomeKind::kRest, block}));
  }
  layers_ = std::make_unique<LayerStream>(device_, &plan_, &blocks_, transfers_.get(), &counters_,
                                          std::move(homes));
}

void BlockSwapper::Impl::BindHomes() {
  const uint64_t generation = ring_.next_generation();
  ring_ = SlotRing(static_cast<int>(blocks_.size()));
  for (size_t slot = 0; slot < layout_.slots.size(); ++slot) {
    ring_.AddSlot({.memory = homes_.span({HomeKind::kSlot, static_cast<int>(slot)}),
                   .generation = generation});
  }
  for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
    resident_of_[block] = homes_.span({HomeKind::kResident, block});
    if (!plan_.base_trains || resident_of_[block].data == nullptr) continue;
    ring_.AddSlot({.memory = resident_of_[block], .generation = generation, .permanent = true});
    ring_.Assign(ring_.size() - 1, block);
    resident_of_[block] = DeviceSpan{};
  }
}

absl::Status BlockSwapper::Impl::TakeMemory() {
  std::vector<HomeKey> lost;  // there was nothing to lose
  BLOCKSWAP_RETURN_IF_ERROR(homes_.Reshape(Demand(plan_, layout_), &lost));
  BindHomes();
  BLOCKSWAP_ASSIGN_OR_RETURN(read_event_, device_->CreateEvent());
  BLOCKSWAP_ASSIGN_OR_RETURN(
      transfers_, BlockTransfers::Create(device_, plan_, &blocks_, &ring_,
                                         {.reader = reader_, .shared = options_.shared_masters}));
  BindLayers();
  return absl::OkStatus();
}

absl::Status BlockSwapper::Impl::ReadResident(int block, DeviceSpan destination,
                                              PinnedArena& staging) {
  const size_t bytes = static_cast<size_t>(blocks_[block].bytes);
  if (device_->device_memory_is_host_visible()) {
    const absl::Span<std::byte> home = absl::MakeSpan(destination.data, bytes);
    BLOCKSWAP_RETURN_IF_ERROR(reader_(block, home));
    if (checks_ != nullptr) checks_->Record(block, home);
    return absl::OkStatus();
  }
  if (staging.bytes() < blocks_[block].bytes) {
    int64_t largest = 0;
    for (const BlockProfile& profile : blocks_) largest = std::max(largest, profile.bytes);
    BLOCKSWAP_ASSIGN_OR_RETURN(staging,
                               PinnedArena::Create(device_, largest, PinnedArena::Lock::kNo));
  }
  BLOCKSWAP_RETURN_IF_ERROR(reader_(block, absl::MakeSpan(staging.data(), bytes)));
  if (checks_ != nullptr) checks_->Record(block, absl::MakeConstSpan(staging.data(), bytes));
  BLOCKSWAP_RETURN_IF_ERROR(
      device_->CopyToDevice({destination.data, blocks_[block].bytes}, staging.data()));
  return device_->SynchronizeStream(Stream::kHostToDevice);
}

absl::Status BlockSwapper::Impl::ReadBlocks() {
  PinnedArena staging;  // one block, for devices the host cannot write to
  size_t next_slot = 0;
  for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
    if (!InSlots(block)) {
      BLOCKSWAP_RETURN_IF_ERROR(ReadResident(block, resident_of_[block], staging));
    } else if (transfers_->HasMaster(block)) {
      BLOCKSWAP_RETURN_IF_ERROR(transfers_->FillMaster(block, reader_));
      BLOCKSWAP_RETURN_IF_ERROR(RecordMaster(block));
    } else {
      // Exchange mode: a block that starts on the device has no home on the host.
      const int slot = static_cast<int>(next_slot++);
      ring_.Assign(slot, block);
      BLOCKSWAP_RETURN_IF_ERROR(ReadResident(block, ring_.slot(slot).memory, staging));
    }
  }
  return absl::OkStatus();
}

absl::Status BlockSwapper::Impl::FillSlots() {
  for (int slot = 0; slot < ring_.size(); ++slot) {
    if (!ring_.slot(slot).permanent) continue;
    BLOCKSWAP_RETURN_IF_ERROR(transfers_->Load(ring_.slot(slot).block, slot));
  }
  for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
    if (StreamsLayers(block)) BLOCKSWAP_RETURN_IF_ERROR(layers_->UploadRest(block));
  }
  BLOCKSWAP_RETURN_IF_ERROR(RestoreInitial());
  return failure_;
}

}  // namespace blockswap::offload
