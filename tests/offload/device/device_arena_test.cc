// SPDX-License-Identifier: Apache-2.0
#include "offload/device/device_arena.h"

#include <gtest/gtest.h>

#include "offload/device/host_device.h"

namespace blockswap::offload {
namespace {

TEST(DeviceArenaTest, ChargesExactlyWhatWasAskedUntilItIsGone) {
  auto device = *HostDevice::Create({.budget_bytes = 10000});
  {
    absl::StatusOr<DeviceArena> arena = DeviceArena::Create(device.get(), 5001, MemoryTag::kRing);
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_EQ(device->ledger().Snapshot().total_bytes, 5001);
    DeviceArena moved = *std::move(arena);
    EXPECT_EQ(moved.bytes(), 5001);
    EXPECT_EQ(moved.Sub(256, 100).data, moved.Sub(0, 1).data + 256);
    EXPECT_EQ(device->ledger().Snapshot().total_bytes, 5001);
  }
  EXPECT_EQ(device->ledger().Snapshot().total_bytes, 0);
}

TEST(DeviceArenaTest, ZeroBytesTakeNothing) {
  auto device = *HostDevice::Create({.budget_bytes = 1});
  absl::StatusOr<DeviceArena> arena = DeviceArena::Create(device.get(), 0, MemoryTag::kRing);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ(arena->bytes(), 0);
}

TEST(DeviceArenaTest, AssignmentGivesTheOldMemoryBack) {
  auto device = *HostDevice::Create({});
  DeviceArena arena = *DeviceArena::Create(device.get(), 100, MemoryTag::kRing);
  arena = *DeviceArena::Create(device.get(), 300, MemoryTag::kAdapter);
  const MemorySnapshot snapshot = device->ledger().Snapshot();
  EXPECT_EQ(snapshot.current_bytes[static_cast<size_t>(MemoryTag::kRing)], 0);
  EXPECT_EQ(snapshot.current_bytes[static_cast<size_t>(MemoryTag::kAdapter)], 300);
}

}  // namespace
}  // namespace blockswap::offload
