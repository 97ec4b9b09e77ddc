// SPDX-License-Identifier: Apache-2.0
#include "offload/host/pinned_arena.h"

#include <gtest/gtest.h>

#include <utility>

#include "offload/base/byte_size.h"
#include "offload/base/proc_file.h"
#include "offload/device/host_device.h"
#include "offload/device/host_memory.h"
#include "tests/fakes/lock_limit.h"

namespace blockswap::offload {
namespace {

int64_t LockedNow() { return base::ReadProcBytes("/proc/self/status", "VmLck").value_or(-1); }

TEST(PinnedArenaTest, LocksTheAskedBytesInWholePagesAndNotAPowerOfTwo) {
  auto device = *HostDevice::Create({});
  const int64_t before = LockedNow();
  for (const int64_t bytes : {int64_t{1}, PageSize() + 1, 5 * base::kMiB / 2, 3 * base::kMiB + 7}) {
    absl::StatusOr<PinnedArena> arena =
        PinnedArena::Create(device.get(), bytes, PinnedArena::Lock::kYes);
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_EQ(arena->bytes(), bytes);
    EXPECT_EQ(arena->locked_bytes(), PageCeil(bytes));
    EXPECT_EQ(LockedNow() - before, arena->locked_bytes());
    arena->data()[bytes - 1] = std::byte{1};
  }
  EXPECT_EQ(LockedNow(), before);
}

TEST(PinnedArenaTest, MovingKeepsOneOwner) {
  auto device = *HostDevice::Create({});
  const int64_t before = LockedNow();
  PinnedArena arena = *PinnedArena::Create(device.get(), PageSize(), PinnedArena::Lock::kYes);
  PinnedArena other = std::move(arena);
  EXPECT_EQ(other.locked_bytes(), PageSize());
  EXPECT_EQ(LockedNow() - before, PageSize());
  other = PinnedArena();
  EXPECT_EQ(LockedNow(), before);
}

TEST(PinnedArenaTest, ARefusedLockLeavesNothingBehind) {
  auto device = *HostDevice::Create({});
  const int64_t before = LockedNow();
  const ScopedLockLimit limit(before + 4 * PageSize());
  ASSERT_TRUE(limit.active());
  EXPECT_EQ(
      PinnedArena::Create(device.get(), 5 * PageSize(), PinnedArena::Lock::kYes).status().code(),
      absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(LockedNow(), before);
  EXPECT_TRUE(PinnedArena::Create(device.get(), 4 * PageSize(), PinnedArena::Lock::kYes).ok());
}

TEST(PinnedArenaTest, PageableAndEmptyArenasLockNothing) {
  auto device = *HostDevice::Create({});
  const PinnedArena pageable = *PinnedArena::Create(device.get(), 100, PinnedArena::Lock::kNo);
  EXPECT_EQ(pageable.locked_bytes(), 0);
  const PinnedArena empty = *PinnedArena::Create(device.get(), 0, PinnedArena::Lock::kYes);
  EXPECT_EQ(empty.data(), nullptr);
}

// F091: a larger request after a free must not get the smaller block that was freed.
TEST(PinnedArenaTest, ALargerArenaAfterAFreeIsWhollyItsOwn) {
  auto device = *HostDevice::Create({});
  for (const int64_t bytes : {150 * base::kMiB, 200 * base::kMiB, 150 * base::kMiB}) {
    const PinnedArena arena = *PinnedArena::Create(device.get(), bytes, PinnedArena::Lock::kNo);
    EXPECT_EQ(arena.bytes(), bytes);
    // Every page, so that a mapping that is too short ends the test.
    for (int64_t offset = 0; offset < bytes; offset += PageSize()) {
      arena.data()[offset] = std::byte{1};
    }
    arena.data()[bytes - 1] = std::byte{2};
  }
}

TEST(PinnedArenaTest, AReadOnlyArenaKeepsItsBytesAndItsLock) {
  auto device = *HostDevice::Create({});
  const int64_t before = LockedNow();
  PinnedArena arena = *PinnedArena::Create(device.get(), PageSize(), PinnedArena::Lock::kYes);
  arena.data()[7] = std::byte{9};
  ASSERT_TRUE(arena.MakeReadOnly().ok());
  EXPECT_EQ(arena.data()[7], std::byte{9});
  EXPECT_EQ(LockedNow() - before, PageSize());
  EXPECT_DEATH(arena.data()[7] = std::byte{1}, "");
}

}  // namespace
}  // namespace blockswap::offload
