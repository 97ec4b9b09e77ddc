// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/slot_ring.h"

#include <gtest/gtest.h>

#include <vector>

namespace blockswap::offload {
namespace {

SlotRing RingOf(const std::vector<int64_t>& capacities, int num_blocks) {
  SlotRing ring(num_blocks);
  for (int64_t bytes : capacities) {
    Slot slot;
    slot.memory.bytes = bytes;
    ring.AddSlot(slot);
  }
  return ring;
}

TEST(SlotRingTest, ABlockIsInOneSlotAndEachLoadIsANewGeneration) {
  SlotRing ring = RingOf({10, 10}, 3);
  EXPECT_EQ(ring.SlotOf(0), kNoSlot);
  ring.Assign(0, 2);
  ring.Assign(1, 0);
  EXPECT_EQ(ring.SlotOf(2), 0);
  EXPECT_EQ(ring.slot(0).generation, 1u);
  ring.Assign(0, 1);
  EXPECT_EQ(ring.SlotOf(2), kNoSlot);
  EXPECT_EQ(ring.SlotOf(1), 0);
  EXPECT_EQ(ring.slot(0).generation, 2u);
  EXPECT_EQ(ring.slot(1).generation, 1u);
}

TEST(SlotRingTest, TheVictimIsEmptyFirstThenNeededLast) {
  SlotRing ring = RingOf({10, 10, 10}, 4);
  const auto distance = [](int block) { return block; };
  ring.Assign(0, 1);
  ring.Assign(1, 3);
  EXPECT_EQ(ring.Victim(10, distance), 2);
  ring.Assign(2, 0);
  EXPECT_EQ(ring.Victim(10, distance), 1);
}

TEST(SlotRingTest, ALeasedSlotOrOneOfAnotherCapacityIsNoVictim) {
  SlotRing ring = RingOf({10, 20}, 4);
  const auto distance = [](int block) { return block; };
  ring.Assign(0, 3);
  ring.Assign(1, 0);
  EXPECT_EQ(ring.Victim(20, distance), 1);
  ring.slot(1).leases = 1;
  EXPECT_EQ(ring.Victim(20, distance), kNoSlot);
  EXPECT_EQ(ring.Victim(15, distance), kNoSlot);
  EXPECT_EQ(ring.Victim(10, distance), 0);
  EXPECT_TRUE(ring.any_leased());
}

}  // namespace
}  // namespace blockswap::offload
