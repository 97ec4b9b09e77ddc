// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/few_blocks.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "offload/plan/candidate.h"
#include "offload/plan/group_builder.h"

namespace blockswap::offload {
namespace {

// A small block that moves twice can spare a large one a move; more than one does not pay.
constexpr int kMoreLoads = 1;

std::vector<int> Named(const std::vector<int>& blocks, unsigned mask) {
  std::vector<int> named;
  for (size_t rank = 0; rank < blocks.size(); ++rank) {
    if ((mask >> rank & 1) != 0) named.push_back(blocks[rank]);
  }
  return named;
}

int CountBits(unsigned mask) {
  int bits = 0;
  for (; mask != 0; mask &= mask - 1) ++bits;
  return bits;
}

}  // namespace

FewBlocks::FewBlocks(const ModelProfile& model, int64_t weight_bytes,
                     const std::vector<double>& h2d)
    : model_(model),
      weight_bytes_(weight_bytes > 0 ? weight_bytes : std::numeric_limits<int64_t>::max()),
      h2d_(h2d) {}

bool FewBlocks::IsStreamable(int block) const {
  for (const BlockList& list : EffectiveLists(model_)) {
    if (block >= list.first && block < list.first + list.count) return list.max_streamed > 0;
  }
  return false;
}

int64_t FewBlocks::LargestOf(const std::vector<int>& blocks) const {
  int64_t largest = 0;
  for (const int block : blocks) {
    largest = std::max(largest, model_.blocks[static_cast<size_t>(block)].bytes);
  }
  return largest;
}

void FewBlocks::ForEach(absl::FunctionRef<double()> most_seconds,
                        absl::FunctionRef<bool(const std::vector<SlotGroup>&)> attempt) {
  most_seconds_ = &most_seconds;
  attempt_ = &attempt;
  done_ = model_.blocks.size() > kFewBlocks;
  Mask streamable = 0;
  for (int block = 0; block < static_cast<int>(model_.blocks.size()); ++block) {
    if (IsStreamable(block)) streamable |= 1u << block;
  }
  for (Mask streamed = 1; streamed <= streamable && !done_; ++streamed) {
    if ((streamed & ~streamable) == 0) DivideSizes(streamed);
  }
  most_seconds_ = nullptr;
  attempt_ = nullptr;
}

// Every way to divide the sizes of what streams into ranges, one kind of slot for each.
void FewBlocks::DivideSizes(Mask streamed) {
  std::vector<int> blocks(model_.blocks.size());
  std::iota(blocks.begin(), blocks.end(), 0);
  const std::vector<int> moving = Named(blocks, streamed);
  int64_t left = weight_bytes_;
  for (const BlockProfile& block : model_.blocks) left -= block.bytes;
  std::set<int64_t> distinct;
  for (const int block : moving) {
    distinct.insert(model_.blocks[static_cast<size_t>(block)].bytes);
    left += model_.blocks[static_cast<size_t>(block)].bytes;
  }
  if (left <= 0) return;
  const std::vector<int64_t> sizes(distinct.begin(), distinct.end());
  for (Mask cuts = 0; cuts < 1u << (sizes.size() - 1) && !done_; ++cuts) {
    std::vector<std::vector<int>> members(1);
    for (size_t i = 0; i < sizes.size(); ++i) {
      for (const int block : moving) {
        if (model_.blocks[static_cast<size_t>(block)].bytes == sizes[i]) {
          members.back().push_back(block);
        }
      }
      if (i + 1 < sizes.size() && (cuts >> i & 1) != 0) members.emplace_back();
    }
    for (std::vector<int>& group : members) std::sort(group.begin(), group.end());
    std::vector<SlotGroup> groups;
    CountSlots(members, left, groups);
  }
}

void FewBlocks::CountSlots(const std::vector<std::vector<int>>& members, int64_t bytes_left,
                           std::vector<SlotGroup>& groups) {
  if (groups.size() == members.size()) {
    // More slots are never slower.
    const bool has_room = std::any_of(groups.begin(), groups.end(), [&](const SlotGroup& group) {
      return group.slots + 1 < static_cast<int>(group.blocks.size()) &&
             LargestOf(group.blocks) <= bytes_left;
    });
    if ((!has_room || spares_) && LeastSeconds(groups) < (*most_seconds_)()) Leave(groups, 0, 0);
    return;
  }
  SlotGroup group;
  group.blocks = group.cycling = members[groups.size()];
  const int size = static_cast<int>(group.blocks.size());
  const int64_t each = LargestOf(group.blocks);
  const int fewest = size - MostAway(model_, group.blocks);
  for (int slots = std::max(1, fewest); slots < size && slots * each <= bytes_left && !done_;
       ++slots) {
    group.slots = slots;
    groups.push_back(group);
    CountSlots(members, bytes_left - slots * each, groups);
    groups.pop_back();
  }
}

double FewBlocks::LeastSeconds(const std::vector<SlotGroup>& groups) const {
  double least = 0;
  for (const SlotGroup& group : groups) {
    std::vector<double> seconds;
    for (const int block : group.blocks) seconds.push_back(h2d_[static_cast<size_t>(block)]);
    std::sort(seconds.begin(), seconds.end());
    const size_t away = group.blocks.size() - static_cast<size_t>(group.slots);
    for (size_t i = 0; i < away; ++i) least += 2 * seconds[i];
  }
  return least;
}

void FewBlocks::Leave(std::vector<SlotGroup>& groups, size_t group, double seconds) {
  if (group == groups.size()) {
    done_ = !(*attempt_)(groups);
    return;
  }
  SlotGroup& own = groups[group];
  for (const Leaving& leaving : LeavingsOf(own)) {
    if (done_ || seconds + leaving.seconds >= (*most_seconds_)()) break;
    own.leave_forward = Named(own.blocks, leaving.forward);
    own.leave_backward = Named(own.blocks, leaving.backward);
    Leave(groups, group + 1, seconds + leaving.seconds);
  }
  own.leave_forward.clear();
  own.leave_backward.clear();
}

double FewBlocks::Seconds(const std::vector<int>& blocks) const {
  double sum = 0;
  for (const int block : blocks) sum += h2d_[static_cast<size_t>(block)];
  return sum;
}

// A pass loads as many blocks of a group as have no slot, at least.
std::vector<FewBlocks::Leaving> FewBlocks::LeavingsWithin(const SlotGroup& group,
                                                          double most_seconds) const {
  const int away = static_cast<int>(group.blocks.size()) - group.slots;
  std::vector<std::pair<double, Mask>> passes;
  for (Mask mask = 1; mask < 1u << group.blocks.size(); ++mask) {
    const int loads = CountBits(mask);
    if (loads < away || loads > away + kMoreLoads) continue;
    passes.emplace_back(Seconds(Named(group.blocks, mask)), mask);
  }
  std::sort(passes.begin(), passes.end());
  std::vector<Leaving> leavings;
  SlotGroup tried = group;
  for (const auto& [forward_seconds, forward] : passes) {
    tried.leave_forward = Named(group.blocks, forward);
    for (const auto& [backward_seconds, backward] : passes) {
      const double seconds = forward_seconds + backward_seconds;
      if (seconds >= most_seconds) break;
      tried.leave_backward = Named(group.blocks, backward);
      if (!LeavingSchedule(static_cast<int>(model_.blocks.size()), tried).has_value()) continue;
      leavings.push_back({seconds, forward, backward});
    }
  }
  std::stable_sort(leavings.begin(), leavings.end(),
                   [](const Leaving& a, const Leaving& b) { return a.seconds < b.seconds; });
  return leavings;
}

const std::vector<FewBlocks::Leaving>& FewBlocks::LeavingsOf(const SlotGroup& group) {
  const auto [entry, is_new] = leavings_.try_emplace({group.blocks, group.slots});
  // The limit only falls: what is left out now is never asked for.
  if (is_new) entry->second = LeavingsWithin(group, (*most_seconds_)());
  return entry->second;
}

}  // namespace blockswap::offload
