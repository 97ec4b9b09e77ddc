// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/slot_layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace blockswap::offload {
namespace {

// More would mean many spare buffers for little.
constexpr size_t kMaxSizes = 3;
constexpr size_t kMostSpareBuffers = 2;  // of one size; one where a single block is away

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

bool PairsAreAlike(const TransferSchedule& schedule, const std::vector<BlockProfile>& blocks) {
  return std::all_of(schedule.transfers.begin(), schedule.transfers.end(),
                     [&](const Transfer& transfer) {
                       return blocks[transfer.load].bytes == blocks[transfer.evict].bytes;
                     });
}

// Whether slots by size can serve every visit: a size that has blocks away needs a slot to bring
// them to.
bool SizesCanBeApart(const SwapPlan& plan, const std::vector<BlockProfile>& blocks) {
  std::set<int64_t> sizes;
  std::set<int64_t> on_device;
  for (size_t i = 0; i < blocks.size(); ++i) {
    sizes.insert(blocks[i].bytes);
    if (plan.blocks[i].residence == Residence::kResident) on_device.insert(blocks[i].bytes);
  }
  return sizes.size() <= kMaxSizes && sizes == on_device && PairsAreAlike(plan.training, blocks) &&
         PairsAreAlike(plan.forward_only, blocks);
}

void LayoutRing(const SwapPlan& plan, const std::vector<BlockProfile>& blocks, SlotLayout& layout) {
  for (int block : plan.streamed_blocks()) {
    layout.capacity_of[block] = SlotBytesFor(plan, blocks[block].bytes);
  }
  for (int block : plan.mastered_blocks()) layout.host_buffers.push_back(blocks[block].bytes);
  layout.slots = plan.slot_sizes;
  layout.slots.resize(static_cast<size_t>(plan.slots), plan.slot_bytes);
}

void LayoutExchange(const SwapPlan& plan, const std::vector<BlockProfile>& blocks,
                    SlotLayout& layout) {
  const bool apart = SizesCanBeApart(plan, blocks);
  std::map<int64_t, size_t> away;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int64_t capacity = apart ? blocks[i].bytes : plan.slot_bytes;
    layout.capacity_of[i] = capacity;
    const bool on_device = plan.blocks[i].residence == Residence::kResident;
    (on_device ? layout.slots : layout.host_buffers).push_back(capacity);
    if (!on_device) ++away[capacity];
  }
  // The leaving block needs a place before the coming one has left its own. With a second one it
  // does not wait for the block that came last, either: both directions work at once.
  for (const auto& [capacity, count] : away) {
    layout.host_buffers.insert(layout.host_buffers.end(), std::min(count, kMostSpareBuffers),
                               capacity);
  }
}

}  // namespace

int64_t SlotLayout::slot_bytes() const { return Sum(slots); }
int64_t SlotLayout::host_bytes() const { return Sum(host_buffers); }

int64_t SlotBytesFor(const SwapPlan& plan, int64_t block_bytes) {
  int64_t best = plan.slot_bytes;
  for (const int64_t size : plan.slot_sizes) {
    if (size >= block_bytes) best = std::min(best, size);
  }
  return best;
}

int NumStagingBuffers(const SwapPlan& plan) {
  return plan.exchanges() ? kExchangeStagingBuffers : std::min(plan.slots, kMostStagingBuffers);
}

SlotLayout LayoutSlots(const SwapPlan& plan, const std::vector<BlockProfile>& blocks) {
  SlotLayout layout;
  layout.capacity_of.assign(blocks.size(), 0);
  if (plan.exchanges()) {
    if (plan.slots > 0) LayoutExchange(plan, blocks, layout);
  } else {
    LayoutRing(plan, blocks, layout);
  }
  return layout;
}

}  // namespace blockswap::offload
