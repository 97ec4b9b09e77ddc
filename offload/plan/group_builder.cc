// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/group_builder.h"

#include <algorithm>
#include <set>

#include "offload/plan/candidate.h"

namespace blockswap::offload {
namespace {

// Slots of more sizes than this are not tried apart, nor are two classes for more than that many.
constexpr size_t kSizesApart = 3;
constexpr size_t kSizesInTwoClasses = 8;

std::vector<int> Streamable(const ModelProfile& model) {
  std::vector<int> members;
  for (const BlockList& list : EffectiveLists(model)) {
    for (int i = 0; i < list.count && list.max_streamed > 0; ++i) members.push_back(list.first + i);
  }
  std::sort(members.begin(), members.end());
  return members;
}

}  // namespace

TimeLine::TimeLine(const ModelProfile& model) {
  double total = 0;
  for (const BlockProfile& block : model.blocks) total += block.forward_flops;
  double end = 0;
  for (const BlockProfile& block : model.blocks) {
    end += total > 0 ? block.forward_flops : 1.0;
    ends_.push_back(end);
  }
}

std::vector<int> TimeLine::EvenlySpacedOf(const std::vector<int>& members, int count) const {
  std::vector<int> chosen;
  const int size = static_cast<int>(members.size());
  if (count >= size) return members;
  const int first = members.front();
  const double begin = first == 0 ? 0.0 : ends_[static_cast<size_t>(first) - 1];
  const double span = ends_[static_cast<size_t>(members.back())] - begin;
  int next = 0;
  for (int i = 0; i < count; ++i) {
    const double target = begin + span * (2.0 * i + 1.0) / (2.0 * count);
    const int last = size - (count - i);
    // Rounding must not push a block over the middle that it is exactly at.
    while (next < last &&
           ends_[static_cast<size_t>(members[static_cast<size_t>(next)])] <= target * (1 + 1e-12)) {
      ++next;
    }
    chosen.push_back(members[static_cast<size_t>(next++)]);
  }
  return chosen;
}

std::vector<Division> Divisions(const ModelProfile& model) {
  const std::vector<int> members = Streamable(model);
  if (members.empty()) return {};
  std::set<int64_t> sizes;
  for (const int block : members) sizes.insert(model.blocks[static_cast<size_t>(block)].bytes);
  std::vector<Division> divisions = {{members}};
  const auto split = [&](const std::vector<int64_t>& limits) {
    Division division(limits.size());
    for (const int block : members) {
      const int64_t bytes = model.blocks[static_cast<size_t>(block)].bytes;
      const auto limit = std::lower_bound(limits.begin(), limits.end(), bytes);
      division[static_cast<size_t>(limit - limits.begin())].push_back(block);
    }
    divisions.push_back(std::move(division));
  };
  if (sizes.size() > 1 && sizes.size() <= kSizesApart) split({sizes.begin(), sizes.end()});
  if (sizes.size() > 2 && sizes.size() <= kSizesInTwoClasses) {
    for (auto size = sizes.begin(); std::next(size) != sizes.end(); ++size) {
      split({*size, *sizes.rbegin()});
    }
  }
  return divisions;
}

int MostAway(const ModelProfile& model, const std::vector<int>& members) {
  int most = 0;
  const std::vector<BlockList> lists = EffectiveLists(model);
  for (const BlockList& list : lists) {
    const auto own = [&](int block) {
      return block >= list.first && block < list.first + list.count;
    };
    const int count = static_cast<int>(std::count_if(members.begin(), members.end(), own));
    most += std::min(count, list.max_streamed);
  }
  if (lists.size() == 1 && model.max_blocks_to_swap > 0) {
    most = std::min(most, model.max_blocks_to_swap);
  }
  return std::max(0, most - 1);  // one slot at least holds one of them
}

std::optional<SlotGroup> BuildGroup(const TimeLine& time, const std::vector<int>& members, int away,
                                    int ring_size) {
  if (away == 0) return std::nullopt;
  const int size = static_cast<int>(members.size());
  SlotGroup group;
  if (ring_size == kWindow && 2 * away < size) {
    // The forward pass evicts the first blocks for the last ones and the backward pass the other
    // way round: those between never move.
    group.blocks.assign(members.begin(), members.begin() + away);
    group.blocks.insert(group.blocks.end(), members.end() - away, members.end());
  } else if (ring_size == kWindow) {
    group.blocks = members;
  } else {
    group.blocks = time.EvenlySpacedOf(members, std::min(size, away + ring_size));
  }
  group.slots = static_cast<int>(group.blocks.size()) - away;
  group.cycling = group.blocks;
  return group;
}

}  // namespace blockswap::offload
