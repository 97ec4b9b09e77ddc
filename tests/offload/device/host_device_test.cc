// SPDX-License-Identifier: Apache-2.0
#include "offload/device/host_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/fakes/lock_limit.h"

namespace blockswap::offload {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostDeviceTest, ArenasAreChargedExactlyAndAligned) {
  auto device = *HostDevice::Create({.budget_bytes = 1 << 20});
  for (const int64_t bytes : {int64_t{1}, int64_t{255}, int64_t{4096}, int64_t{70000}}) {
    absl::StatusOr<DeviceSpan> arena = device->AllocateArena(bytes, MemoryTag::kRing);
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_EQ(arena->bytes, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data) % 256, 0u);
    EXPECT_EQ(device->ledger().Snapshot().total_bytes, bytes);
    device->FreeArena(*arena, MemoryTag::kRing);
    EXPECT_EQ(device->ledger().Snapshot().total_bytes, 0);
  }
}

TEST(HostDeviceTest, OutOfMemoryIsRealAndLeavesTheBudgetAsItWas) {
  auto device = *HostDevice::Create({.budget_bytes = 1000});
  const DeviceSpan held = *device->AllocateArena(600, MemoryTag::kResidentBlocks);
  const absl::Status refused = device->AllocateArena(401, MemoryTag::kRing).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("ring"), HasSubstr("asked 401"), HasSubstr("in use 600"),
                    HasSubstr("budget 1000")));
  EXPECT_EQ(device->facts().free_bytes, 400);
  EXPECT_EQ(device->facts().total_bytes, 1000);
  device->FreeArena(held, MemoryTag::kResidentBlocks);
}

TEST(HostDeviceTest, MemoryTheSystemRefusesIsNotCharged) {
  auto device = *HostDevice::Create({});
  const absl::Status refused = device->AllocateArena(int64_t{1} << 60, MemoryTag::kRing).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device->ledger().Snapshot().total_bytes, 0);
  EXPECT_EQ(device->AllocateArena(0, MemoryTag::kRing).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HostDeviceTest, RefusesNegativeOptions) {
  EXPECT_EQ(HostDevice::Create({.budget_bytes = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(HostDevice::Create({.h2d_bytes_per_second = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HostDeviceTest, WithoutABudgetItReportsTheHost) {
  auto device = *HostDevice::Create({});
  EXPECT_EQ(device->facts().name, "host");
  EXPECT_GT(device->facts().free_bytes, 0);
  EXPECT_GE(device->facts().total_bytes, device->facts().free_bytes);
}

TEST(HostDeviceTest, ComputeWaitsForTheCopyAndCountsTheStall) {
  auto device = *HostDevice::Create({.latency = absl::Milliseconds(100)});
  const DeviceSpan arena = *device->AllocateArena(4096, MemoryTag::kRing);
  const std::vector<std::byte> source(4096, std::byte{42});
  const EventId ready = *device->CreateEvent();
  EXPECT_TRUE(device->IsComplete(ready));
  ASSERT_TRUE(device->CopyToDevice(arena, source.data()).ok());
  ASSERT_TRUE(device->Record(ready, Stream::kHostToDevice).ok());
  EXPECT_FALSE(device->IsComplete(ready));
  EXPECT_EQ(device->compute_stall(), absl::ZeroDuration());
  ASSERT_TRUE(device->Wait(Stream::kCompute, ready).ok());
  EXPECT_TRUE(device->IsComplete(ready));
  EXPECT_EQ(std::memcmp(arena.data, source.data(), source.size()), 0);
  EXPECT_GT(device->compute_stall(), absl::ZeroDuration());
  const absl::Duration stalled = device->compute_stall();
  ASSERT_TRUE(device->Wait(Stream::kCompute, ready).ok());
  EXPECT_EQ(device->compute_stall(), stalled);
  EXPECT_EQ(device->copies(CopyDirection::kHostToDevice).bytes, 4096);
  EXPECT_EQ(device->copies(CopyDirection::kDeviceToHost).bytes, 0);
  device->FreeArena(arena, MemoryTag::kRing);
  device->DestroyEvent(ready);
}

TEST(HostDeviceTest, LanesAreOrderedAmongEachOtherByEventsOnly) {
  auto device = *HostDevice::Create({.latency = absl::Milliseconds(5)});
  const DeviceSpan arena = *device->AllocateArena(256, MemoryTag::kRing);
  std::memset(arena.data, 1, 256);
  std::vector<std::byte> saved(256);
  const std::vector<std::byte> next(256, std::byte{2});
  const EventId written = *device->CreateEvent();
  ASSERT_TRUE(device->CopyToHost(saved.data(), arena).ok());
  ASSERT_TRUE(device->Record(written, Stream::kDeviceToHost).ok());
  ASSERT_TRUE(device->Wait(Stream::kHostToDevice, written).ok());
  ASSERT_TRUE(device->CopyToDevice(arena, next.data()).ok());
  ASSERT_TRUE(device->SynchronizeStream(Stream::kHostToDevice).ok());
  EXPECT_EQ(saved[0], std::byte{1});
  EXPECT_EQ(saved[255], std::byte{1});
  EXPECT_EQ(arena.data[128], std::byte{2});
  device->FreeArena(arena, MemoryTag::kRing);
}

TEST(HostDeviceTest, SynchronizeReturnsWhenTheLastRecordHasHappened) {
  auto device = *HostDevice::Create({.d2h_bytes_per_second = 1e5});
  const DeviceSpan arena = *device->AllocateArena(1000, MemoryTag::kRing);
  std::memset(arena.data, 9, 1000);
  std::vector<std::byte> host(1000);
  const EventId event = *device->CreateEvent();
  ASSERT_TRUE(device->CopyToHost(host.data(), arena).ok());
  ASSERT_TRUE(device->Record(event, Stream::kDeviceToHost).ok());
  ASSERT_TRUE(device->Synchronize(event).ok());
  EXPECT_EQ(host[999], std::byte{9});
  EXPECT_GE(device->copies(CopyDirection::kDeviceToHost).busy, absl::Milliseconds(10));
  device->FreeArena(arena, MemoryTag::kRing);
}

TEST(HostDeviceTest, ALockBeyondTheLimitIsRefused) {
  auto device = *HostDevice::Create({});
  const DeviceSpan arena = *device->AllocateArena(1 << 20, MemoryTag::kOther);
  const ScopedLockLimit limit(64 << 10);
  ASSERT_TRUE(limit.active());
  EXPECT_EQ(device->LockHostMemory(arena.data, arena.bytes).code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(device->LockHostMemory(arena.data, 32 << 10).ok());
  device->UnlockHostMemory(arena.data, 32 << 10);
  device->FreeArena(arena, MemoryTag::kOther);
}

}  // namespace
}  // namespace blockswap::offload
