// SPDX-License-Identifier: Apache-2.0
#include "offload/host/host_masters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "offload/base/byte_size.h"
#include "offload/base/proc_file.h"
#include "offload/device/host_device.h"
#include "offload/device/host_memory.h"
#include "offload/device/simulated_device.h"
#include "offload/host/host_budget.h"
#include "tests/fakes/lock_limit.h"

namespace blockswap::offload {
namespace {

using base::kMiB;
using ::testing::AllOf;
using ::testing::HasSubstr;

int64_t LockedNow() { return base::ReadProcBytes("/proc/self/status", "VmLck").value_or(-1); }

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
  const int64_t scale = ReadHostFacts().lockable_bytes >= 400 * kMiB ? kMiB : kMiB / 64;
  for (const int64_t block_bytes : {9 * scale, 36 * scale, 96 * scale}) {
    const std::vector<int64_t> sizes(3, block_bytes);
    const int64_t before = LockedNow();
    absl::StatusOr<HostMasters> masters =
        HostMasters::Create(device.get(), sizes, PinPolicy::kRequired, {});
    ASSERT_TRUE(masters.ok()) << masters.status();
    EXPECT_EQ(masters->bytes(), 3 * block_bytes);
    EXPECT_EQ(masters->locked_bytes(), 3 * block_bytes);
    EXPECT_EQ(LockedNow() - before, 3 * block_bytes);
    EXPECT_EQ(CountPinned(*masters), 3);
    EXPECT_FALSE(masters->has_pageable());
  }
}

TEST(HostMastersTest, BuffersAreDisjointAndOfTheirExactSize) {
  auto device = *HostDevice::Create({});
  const std::vector<int64_t> sizes = {256, 1024, 512, 256 * 77};
  const HostMasters masters = *HostMasters::Create(device.get(), sizes, PinPolicy::kNever, {});
  EXPECT_EQ(masters.bytes(), std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  for (int i = 0; i + 1 < masters.size(); ++i) {
    EXPECT_EQ(masters.buffer(i).bytes, sizes[static_cast<size_t>(i)]);
    EXPECT_EQ(masters.buffer(i).data + masters.buffer(i).bytes, masters.buffer(i + 1).data);
  }
  EXPECT_EQ(CountPinned(masters), 0);
  EXPECT_EQ(masters.locked_bytes(), 0);
}

TEST(HostMastersTest, AutoLocksTheBlocksTheLimitAllows) {
  auto device = *HostDevice::Create({});
  const std::vector<int64_t> sizes(8, 16 * 4096);
  const ScopedLockLimit limit(LockedNow() + 5 * 16 * 4096 + 4096);
  ASSERT_TRUE(limit.active());
  const HostMasters masters = *HostMasters::Create(device.get(), sizes, PinPolicy::kAuto, {});
  EXPECT_EQ(CountPinned(masters), 5);
  EXPECT_EQ(masters.locked_bytes(), 5 * 16 * 4096);
  EXPECT_TRUE(masters.has_pageable());
  EXPECT_EQ(masters.bytes(), 8 * 16 * 4096);
}

TEST(HostMastersTest, WithoutMixingAPartlyRefusedLockLeavesAllPageable) {
  auto device = *HostDevice::Create({});
  const ScopedLockLimit limit(LockedNow() + 5 * 4096);
  ASSERT_TRUE(limit.active());
  const HostMasters masters = *HostMasters::Create(device.get(), std::vector<int64_t>(8, 4096),
                                                   PinPolicy::kAuto, {.one_tier = true});
  EXPECT_EQ(CountPinned(masters), 0);
}

TEST(HostMastersTest, AutoHalvesWhenADeviceRefusesWithoutALimit) {
  SimulatedDevice device({.lockable_bytes = 3 * 4096});
  const HostMasters masters =
      *HostMasters::Create(&device, std::vector<int64_t>(8, 4096), PinPolicy::kAuto, {});
  EXPECT_EQ(CountPinned(masters), 2);  // 8 refused, 4 refused, 2 taken
}

TEST(HostMastersTest, LeavesRoomForTheStagingBuffersOfWhatStaysPageable) {
  auto device = *HostDevice::Create({});
  const ScopedLockLimit limit(LockedNow() + 6 * 4096);
  ASSERT_TRUE(limit.active());
  const HostMasters masters = *HostMasters::Create(device.get(), std::vector<int64_t>(8, 4096),
                                                   PinPolicy::kAuto, {.reserved_bytes = 2 * 4096});
  EXPECT_EQ(CountPinned(masters), 4);
  EXPECT_TRUE(PinnedArena::Create(device.get(), 2 * 4096, PinnedArena::Lock::kYes).ok());
}

TEST(HostMastersTest, RequiredIsRefusedWithAskedLimitAndWhatToLower) {
  auto device = *HostDevice::Create({});
  const int64_t limit_bytes = LockedNow() + 4 * 4096;
  const ScopedLockLimit limit(limit_bytes);
  ASSERT_TRUE(limit.active());
  const absl::Status refused =
      HostMasters::Create(device.get(), std::vector<int64_t>(5, 4096), PinPolicy::kRequired, {})
          .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("page-locked host memory"), HasSubstr("5 streamed blocks"),
                    HasSubstr("asked 20480 bytes"), HasSubstr(std::to_string(limit_bytes)),
                    HasSubstr("lower blocks_to_swap")));
}

}  // namespace
}  // namespace blockswap::offload
