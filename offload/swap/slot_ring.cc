// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/slot_ring.h"

#include <algorithm>

namespace blockswap::offload {

bool SlotRing::any_leased() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot& slot) { return slot.leases > 0; });
}

void SlotRing::Assign(int index, int block) {
  Slot& slot = slots_[index];
  if (slot.block != kNoBlock) slot_of_[slot.block] = kNoSlot;
  slot.block = block;
  slot_of_[block] = index;
  ++slot.generation;
}

void SlotRing::Empty(int index) {
  Slot& slot = slots_[index];
  if (slot.block != kNoBlock) slot_of_[slot.block] = kNoSlot;
  slot.block = kNoBlock;
  ++slot.generation;
}

uint64_t SlotRing::next_generation() const {
  uint64_t generation = 0;
  for (const Slot& slot : slots_) generation = std::max(generation, slot.generation);
  return generation + 1;
}

int SlotRing::Victim(int64_t capacity, const std::function<int(int block)>& distance) const {
  int best = kNoSlot;
  int best_distance = -1;
  for (int index = 0; index < size(); ++index) {
    const Slot& slot = slots_[index];
    if (slot.leases > 0 || slot.permanent || slot.memory.bytes != capacity) continue;
    if (slot.block == kNoBlock) return index;
    const int candidate = distance(slot.block);
    if (candidate > best_distance) {
      best = index;
      best_distance = candidate;
    }
  }
  return best;
}

}  // namespace blockswap::offload
