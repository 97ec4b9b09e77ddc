// SPDX-License-Identifier: Apache-2.0
// Which block sits in which device slot, who reads it, and how often each slot was refilled.
// Bookkeeping only.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_SLOT_RING_H_
#define BLOCKSWAP_OFFLOAD_SWAP_SLOT_RING_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "offload/device/device_runtime.h"

namespace blockswap::offload {

inline constexpr int kNoBlock = -1;
inline constexpr int kNoSlot = -1;

struct Slot {
  DeviceSpan memory;
  int block = kNoBlock;
  uint64_t generation =
      0;  // grows when a load into the slot starts; a lease of an older one is void
  int leases = 0;
  EventId ready = kNoEvent;     // h2d: the last load has arrived
  EventId released = kNoEvent;  // compute: past the last reader
  bool was_loaded = false;      // `ready` was recorded
  bool was_released = false;    // `released` was recorded
  uint64_t staging_ticket = 0;  // 0: the last load did not go through the staging pool
  bool permanent = false;       // holds one block for good: a resident of a base that trains
};

// Thread safety: the trainer's thread only. Invariants: a block is in at most one slot; a leased
// slot is never reassigned.
class SlotRing {
 public:
  explicit SlotRing(int num_blocks) : slot_of_(static_cast<size_t>(num_blocks), kNoSlot) {}

  void AddSlot(Slot slot) { slots_.push_back(slot); }
  int size() const { return static_cast<int>(slots_.size()); }
  Slot& slot(int index) { return slots_[index]; }
  const Slot& slot(int index) const { return slots_[index]; }
  // Larger than every generation so far.
  uint64_t next_generation() const;
  int SlotOf(int block) const { return slot_of_[block]; }
  bool any_leased() const;

  // Gives the slot to `block` and starts a new generation. REQUIRES: slot not leased, block in no
  // slot.
  void Assign(int index, int block);

  // Forgets what is in the slot. REQUIRES: slot not leased.
  void Empty(int index);

  // The best slot of exactly `capacity` bytes to overwrite: an empty one, else the unleased one
  // whose block has the largest `distance` (visits until its next use). kNoSlot when none is free.
  int Victim(int64_t capacity, const std::function<int(int block)>& distance) const;

 private:
  std::vector<Slot> slots_;
  std::vector<int> slot_of_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_SLOT_RING_H_
