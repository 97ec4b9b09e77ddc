// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/layer_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "offload/host/pinned_arena.h"

namespace blockswap::offload {
namespace {

// Visits that were passed over let their loads go up to this many; more is another place in the
// cycle altogether.
constexpr int kMostSkipped = 8;

}  // namespace

LayerStream::LayerStream(DeviceRuntime* device, const SwapPlan* plan,
                         const std::vector<BlockProfile>* blocks, BlockTransfers* transfers,
                         SwapStats* counters, Homes homes)
    : device_(device),
      plan_(plan),
      blocks_(blocks),
      transfers_(transfers),
      counters_(counters),
      homes_(std::move(homes)),
      first_unit_(blocks->size(), -1),
      layer_of_(blocks->size()),
      rest_(blocks->size()),
      training_visits_{plan->window.training.visits, {}, {}},
      forward_only_visits_{plan->window.forward_only.visits, {}, {}},
      // A cursor over units knows no directions: their order alone says which visit is meant.
      training_(&training_visits_, PassKind::kForwardOnly,
                static_cast<int>(plan->window.units.size())),
      forward_only_(&forward_only_visits_, PassKind::kForwardOnly,
                    static_cast<int>(plan->window.units.size())) {
  const std::vector<LayerUnit>& units = plan->window.units;
  for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
    const size_t block = static_cast<size_t>(units[static_cast<size_t>(unit)].block);
    if (first_unit_[block] < 0) {
      first_unit_[block] = unit;
      rest_[block] = LayoutRest((*blocks_)[block]);
      layer_of_[block].assign((*blocks_)[block].tensors.size(), -1);
    }
    for (int tensor : layer(unit).tensors) {
      layer_of_[block][static_cast<size_t>(tensor)] = units[static_cast<size_t>(unit)].layer;
    }
  }
}

const LayerProfile& LayerStream::layer(int unit) const {
  const LayerUnit& named = plan_->window.units[static_cast<size_t>(unit)];
  return (*blocks_)[static_cast<size_t>(named.block)].layers[static_cast<size_t>(named.layer)];
}

int LayerStream::UnitOf(int block, int tensor) const {
  const int layer = layer_of_[static_cast<size_t>(block)][static_cast<size_t>(tensor)];
  return layer < 0 ? -1 : first_unit_[static_cast<size_t>(block)] + layer;
}

DeviceSpan LayerStream::Rest(int block, int tensor) const {
  const size_t b = static_cast<size_t>(block);
  const size_t t = static_cast<size_t>(tensor);
  return {homes_.rest[b].data + rest_[b].offset_of[t], (*blocks_)[b].tensors[t].bytes};
}

absl::Status LayerStream::UploadRest(int block) {
  const std::vector<TensorExtent>& tensors = (*blocks_)[static_cast<size_t>(block)].tensors;
  const std::byte* const data = transfers_->HostData(block);
  for (int tensor = 0; tensor < static_cast<int>(tensors.size()); ++tensor) {
    if (UnitOf(block, tensor) >= 0) continue;
    BLOCKSWAP_RETURN_IF_ERROR(device_->CopyToDevice(
        Rest(block, tensor), data + tensors[static_cast<size_t>(tensor)].offset));
  }
  return device_->SynchronizeStream(Stream::kHostToDevice);
}

LayerStream::Entry* LayerStream::Find(int unit) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.unit == unit; });
  return found == entries_.end() ? nullptr : &*found;
}

const LayerStream::Entry* LayerStream::Find(int unit) const {
  return const_cast<LayerStream*>(this)->Find(unit);
}

std::vector<int> LayerStream::units_in_window() const {
  std::vector<int> units;
  for (const Entry& entry : entries_) units.push_back(entry.unit);
  return units;
}

void LayerStream::ForgetStaging() {
  for (Entry& entry : entries_) entry.ticket = 0;
}

bool LayerStream::IsReady(const Entry& entry) const {
  return transfers_->IsStagedQueued(entry.ticket) && device_->IsComplete(ready_event(entry.unit));
}

absl::Status LayerStream::BeginPass(PassKind kind) {
  pass_ = kind;
  cursor().Reset();
  asked_ = deferred_ = kNoVisit;
  asks_of_.resize(std::max(asks_of_.size(), schedule().visits.size()), 1);
  for (const LayerPlace& place : schedule().initial) {
    const Entry* const there = Find(place.unit);
    if (there != nullptr && there->offset == place.offset) continue;
    BLOCKSWAP_RETURN_IF_ERROR(Load(place.unit, place.offset).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LayerStream::Load(int unit, int64_t offset) {
  const int64_t bytes = layer(unit).bytes;
  const auto in_the_way = [&](const Entry& entry) {
    return entry.unit == unit ||
           (entry.offset < offset + bytes && offset < entry.offset + entry.bytes);
  };
  for (const Entry& entry : entries_) {
    if (entry.holds > 0 && in_the_way(entry)) return false;
  }
  for (const Entry& entry : entries_) {
    // The staging thread has to have queued the copy that this one overwrites.
    if (in_the_way(entry)) BLOCKSWAP_RETURN_IF_ERROR(transfers_->JoinStaged(entry.ticket));
  }
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(), in_the_way), entries_.end());
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const uint64_t ticket,
      transfers_->CopyUp({.block = block_of(unit),
                          .offset = layer(unit).offset,
                          .destination = {homes_.window.data + offset, bytes},
                          .released = was_released_ ? transfers_->layers_released() : kNoEvent,
                          .ready = ready_event(unit)}));
  entries_.push_back({.unit = unit, .offset = offset, .bytes = bytes, .ticket = ticket});
  return true;
}

absl::Status LayerStream::RunLoads(int visit) {
  const std::vector<LayerLoad>& loads = schedule().loads;
  auto load = std::lower_bound(
      loads.begin(), loads.end(), visit,
      [](const LayerLoad& candidate, int after) { return candidate.after_visit < after; });
  for (; load != loads.end() && load->after_visit == visit; ++load) {
    const Entry* const there = Find(load->unit);
    if (there != nullptr && there->offset == load->offset) continue;
    // What is held stays: the load is made up for on demand. What a visit out of order has left
    // elsewhere would be in the way of later loads.
    BLOCKSWAP_RETURN_IF_ERROR(Load(load->unit, load->offset).status());
  }
  return absl::OkStatus();
}

absl::Status LayerStream::LoadOnDemand(int unit) {
  const int64_t bytes = layer(unit).bytes;
  std::vector<int64_t> offsets = {0, homes_.window.bytes - bytes};
  for (const Entry& entry : entries_) {
    offsets.insert(offsets.end(), {entry.offset + entry.bytes, entry.offset - bytes});
  }
  int64_t best = -1;
  int best_distance = -1;
  for (const int64_t offset : offsets) {
    if (offset < 0 || offset + bytes > homes_.window.bytes) continue;
    int distance = kNeverUsed;  // until something that is lost is needed again
    for (const Entry& entry : entries_) {
      if (entry.offset >= offset + bytes || offset >= entry.offset + entry.bytes) continue;
      distance = entry.holds > 0 ? -1 : std::min(distance, cursor().DistanceToNextUse(entry.unit));
    }
    if (distance <= best_distance) continue;
    best = offset;
    best_distance = distance;
  }
  if (best >= 0) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool loaded, Load(unit, best));
    if (loaded) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "a layer of block ", block_of(unit), " needs ", bytes, " bytes of the window of ",
      homes_.window.bytes, ", and what is held leaves no such place: let go of a tensor first"));
}

absl::Status LayerStream::Hold(int unit) {
  if (Entry* const held = Find(unit); held != nullptr && held->holds > 0) {
    ++held->holds;
    return absl::OkStatus();
  }
  const VisitCursor::Step step = cursor().Advance(unit, Direction::kForward);
  BLOCKSWAP_RETURN_IF_ERROR(CountAsk(step.visit));
  for (int i = 0; step.num_skipped <= kMostSkipped && i < step.num_skipped; ++i) {
    BLOCKSWAP_RETURN_IF_ERROR(RunLoads((step.first_skipped + i) % cursor().num_visits()));
  }
  Entry* entry = Find(unit);
  if (entry == nullptr) {
    BLOCKSWAP_RETURN_IF_ERROR(LoadOnDemand(unit));
    entry = Find(unit);
    ++counters_->misses;
  } else {
    ++(IsReady(*entry) ? counters_->hits : counters_->late);
  }
  BLOCKSWAP_RETURN_IF_ERROR(transfers_->JoinStaged(entry->ticket));
  entry->ticket = 0;
  // Compute waits: h2d has brought the linear.
  BLOCKSWAP_RETURN_IF_ERROR(device_->Wait(Stream::kCompute, ready_event(unit)));
  entry->visit = step.visit;
  entry->holds = 1;
  return absl::OkStatus();
}

DeviceSpan LayerStream::UnitSpan(int unit) const {
  const Entry* const entry = Find(unit);
  return {homes_.window.data + entry->offset, entry->bytes};
}

DeviceSpan LayerStream::Span(int unit, int tensor) const {
  const TensorExtent& extent =
      (*blocks_)[static_cast<size_t>(block_of(unit))].tensors[static_cast<size_t>(tensor)];
  return {UnitSpan(unit).data + (extent.offset - layer(unit).offset), extent.bytes};
}

absl::Status LayerStream::EndHold(int unit) {
  Entry* const entry = Find(unit);
  if (--entry->holds > 0) return absl::OkStatus();
  const int visit = entry->visit;
  entry->visit = kNoVisit;
  BLOCKSWAP_RETURN_IF_ERROR(device_->Record(transfers_->layers_released(), Stream::kCompute));
  was_released_ = true;
  if (visit == kNoVisit) return absl::OkStatus();
  // More of the same layer is to come, if the cycle before is anything to go by: nothing may take
  // its place yet.
  if (visit == asked_ && asks_ < asks_of_[static_cast<size_t>(visit)]) {
    deferred_ = visit;
    return absl::OkStatus();
  }
  return RunLoads(visit);
}

absl::Status LayerStream::CountAsk(int visit) {
  if (visit == kNoVisit) return absl::OkStatus();
  const int deferred = std::exchange(deferred_, kNoVisit);
  if (visit == asked_) {
    int& asks_of = asks_of_[static_cast<size_t>(visit)];
    asks_of = std::max(asks_of, ++asks_);
    return absl::OkStatus();
  }
  asked_ = visit;
  asks_ = 1;
  // It was asked for less often this time.
  return deferred == kNoVisit ? absl::OkStatus() : RunLoads(deferred);
}

}  // namespace blockswap::offload
