// SPDX-License-Identifier: Apache-2.0
#include "offload/host/host_masters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "offload/base/byte_size.h"
#include "offload/base/host_facts.h"
#include "offload/base/proc_file.h"
#include "offload/device/host_device.h"
#include "offload/device/host_memory.h"
#include "offload/device/simulated_device.h"
#include "tests/fakes/lock_limit.h"

namespace blockswap::offload {
namespace {

using base::kMiB;
using ::testing::AllOf;
using ::testing::HasSubstr;

int64_t LockedNow() { return base::ReadProcBytes("/proc/self/status", "VmLck").value_or(-1); }

std::vector<MasterSpec> Specs(const std::vector<int64_t>& sizes) {
  std::vector<MasterSpec> specs;
  for (const int64_t bytes : sizes) specs.push_back({.bytes = bytes});
  return specs;
}
std::vector<MasterSpec> Specs(int count, int64_t bytes) {
  return Specs(std::vector<int64_t>(static_cast<size_t>(count), bytes));
}

int CountPinned(const HostMasters& masters) {
  int pinned = 0;
  for (int i = 0; i < masters.size(); ++i) {
    pinned += masters.buffer(i).tier == HostTier::kPinned;
  }
  return pinned;
}

// F058: blocks of 9, 36 and 96 MiB. A rounding allocator would lock 16, 64 and 128 MiB for each.
TEST(HostMastersTest, LockedBytesAreTheBlocksToAPage) {
  auto device = *HostDevice::Create({});
  // Where an ordinary limit is in force the same shapes are tried at a 64th of the size.
  const int64_t scale = base::ReadHostFacts().lockable_bytes >= 400 * kMiB ? kMiB : kMiB / 64;
  for (const int64_t block_bytes : {9 * scale, 36 * scale, 96 * scale}) {
    const std::vector<int64_t> sizes(3, block_bytes);
    const int64_t before = LockedNow();
    absl::StatusOr<HostMasters> masters =
        HostMasters::Create(device.get(), Specs(sizes), PinPolicy::kRequired, {});
    ASSERT_TRUE(masters.ok()) << masters.status();
    EXPECT_EQ(masters->bytes(), 3 * block_bytes);
    EXPECT_EQ(masters->locked_bytes(), 3 * block_bytes);
    EXPECT_EQ(LockedNow() - before, 3 * block_bytes);
    EXPECT_EQ(CountPinned(*masters), 3);
    EXPECT_FALSE(masters->has_pageable());
  }
}

TEST(HostMastersTest, BuffersAreDisjointAlignedAndOfTheirExactSize) {
  auto device = *HostDevice::Create({});
  const std::vector<int64_t> sizes = {256, 1024, 512, 256 * 77};
  const HostMasters masters =
      *HostMasters::Create(device.get(), Specs(sizes), PinPolicy::kNever, {});
  EXPECT_EQ(masters.bytes(), std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  for (int i = 0; i < masters.size(); ++i) {
    const HostBuffer& buffer = masters.buffer(i);
    EXPECT_EQ(buffer.bytes, sizes[static_cast<size_t>(i)]);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data) % kTensorAlignment, 0u);
    std::fill_n(buffer.data, buffer.bytes, static_cast<std::byte>(i + 1));
  }
  for (int i = 0; i < masters.size(); ++i) {  // no write went into a neighbour
    const HostBuffer& buffer = masters.buffer(i);
    EXPECT_EQ(std::count(buffer.data, buffer.data + buffer.bytes, static_cast<std::byte>(i + 1)),
              buffer.bytes);
  }
  EXPECT_EQ(CountPinned(masters), 0);
  EXPECT_EQ(masters.locked_bytes(), 0);
}

TEST(HostMastersTest, AutoLocksTheBlocksTheLimitAllows) {
  auto device = *HostDevice::Create({});
  const std::vector<int64_t> sizes(8, 16 * 4096);
  const ScopedLockLimit limit(LockedNow() + 5 * 16 * 4096 + 4096);
  ASSERT_TRUE(limit.active());
  const HostMasters masters =
      *HostMasters::Create(device.get(), Specs(sizes), PinPolicy::kAuto, {});
  EXPECT_EQ(CountPinned(masters), 5);
  EXPECT_EQ(masters.locked_bytes(), 5 * 16 * 4096);
  EXPECT_TRUE(masters.has_pageable());
  EXPECT_EQ(masters.bytes(), 8 * 16 * 4096);
}

TEST(HostMastersTest, WithoutMixingAPartlyRefusedLockLeavesAllPageable) {
  auto device = *HostDevice::Create({});
  const ScopedLockLimit limit(LockedNow() + 5 * 4096);
  ASSERT_TRUE(limit.active());
  const HostMasters masters =
      *HostMasters::Create(device.get(), Specs(8, 4096), PinPolicy::kAuto, {.one_tier = true});
  EXPECT_EQ(CountPinned(masters), 0);
}

TEST(HostMastersTest, AutoLocksUntilADeviceRefusesWithoutALimit) {
  SimulatedDevice device({.lockable_bytes = 3 * 4096});
  const HostMasters masters = *HostMasters::Create(&device, Specs(8, 4096), PinPolicy::kAuto, {});
  EXPECT_EQ(CountPinned(masters), 3);
}

TEST(HostMastersTest, LeavesRoomForTheStagingBuffersOfWhatStaysPageable) {
  auto device = *HostDevice::Create({});
  const ScopedLockLimit limit(LockedNow() + 6 * 4096);
  ASSERT_TRUE(limit.active());
  const HostMasters masters = *HostMasters::Create(device.get(), Specs(8, 4096), PinPolicy::kAuto,
                                                   {.reserved_bytes = 2 * 4096});
  EXPECT_EQ(CountPinned(masters), 4);
  EXPECT_TRUE(PinnedArena::Create(device.get(), 2 * 4096, PinnedArena::Lock::kYes).ok());
}

TEST(HostMastersTest, RequiredIsRefusedWithAskedLimitAndWhatToLower) {
  auto device = *HostDevice::Create({});
  const int64_t limit_bytes = LockedNow() + 4 * 4096;
  const ScopedLockLimit limit(limit_bytes);
  ASSERT_TRUE(limit.active());
  const absl::Status refused =
      HostMasters::Create(device.get(), Specs(5, 4096), PinPolicy::kRequired, {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("page-locked host memory"), HasSubstr("5 streamed blocks"),
                    HasSubstr("asked 20480 bytes"), HasSubstr(std::to_string(limit_bytes)),
                    HasSubstr("lower blocks_to_swap")));
}

// F090: whichever lock is refused, what could be locked is used, and everything comes back.
TEST(HostMastersTest, ARefusalAtEveryLockFallsBackAndLeavesNothingLocked) {
  const std::vector<int64_t> sizes(6, 4096);
  for (int failing = 1; failing <= 6; ++failing) {
    SimulatedDevice device({.failures = {.lock = failing}});
    {
      const HostMasters masters = *HostMasters::Create(&device, Specs(sizes), PinPolicy::kAuto, {});
      EXPECT_EQ(CountPinned(masters), failing - 1);
      EXPECT_EQ(masters.bytes(), 6 * 4096);
      EXPECT_EQ(masters.bytes_of(HostTier::kPageable), (6 - CountPinned(masters)) * 4096);
    }
    SimulatedDevice strict({.failures = {.lock = failing}});
    const absl::Status required =
        HostMasters::Create(&strict, Specs(sizes), PinPolicy::kRequired, {}).status();
    EXPECT_EQ(required.code(), absl::StatusCode::kResourceExhausted);
    // All of it can be locked again: nothing of the refused attempt is left.
    EXPECT_TRUE(HostMasters::Create(&strict, Specs(sizes), PinPolicy::kRequired, {}).ok())
        << failing;
  }
}

TEST(HostMastersTest, ABlockOfTheFileTierTakesNoMemory) {
  auto device = *HostDevice::Create({});
  int reads = 0;
  const BlockReader read = [&](int block, absl::Span<std::byte> destination) {
    ++reads;
    std::fill(destination.begin(), destination.end(), static_cast<std::byte>(block));
    return absl::OkStatus();
  };
  HostMasters masters = *HostMasters::Create(
      device.get(),
      {{.bytes = 4096, .block = 3}, {.bytes = 8192, .block = 5, .stays_in_file = true}},
      PinPolicy::kNever, {});
  ASSERT_TRUE(masters.Fill(0, read).ok());
  ASSERT_TRUE(masters.Fill(1, read).ok());
  EXPECT_EQ(reads, 1);
  EXPECT_EQ(masters.buffer(0).data[4095], std::byte{3});
  EXPECT_EQ(masters.buffer(1).data, nullptr);
  EXPECT_EQ(masters.bytes(), 4096);
  EXPECT_EQ(masters.bytes_of(HostTier::kFile), 8192);
}

TEST(HostMastersTest, AddedAndRemovedBuffersAreCountedExactly) {
  auto device = *HostDevice::Create({});
  const int64_t before = LockedNow();
  HostMasters masters = *HostMasters::Create(device.get(), Specs(1, 4096), PinPolicy::kAuto, {});
  const int added = *masters.Add({.bytes = 12288});
  EXPECT_EQ(masters.bytes(), 16384);
  EXPECT_EQ(LockedNow() - before, masters.locked_bytes());
  masters.Remove(0);
  EXPECT_EQ(masters.bytes(), 12288);
  EXPECT_EQ(masters.buffer(added).bytes, 12288);
  EXPECT_EQ(LockedNow() - before, masters.locked_bytes());
}

}  // namespace
}  // namespace blockswap::offload
