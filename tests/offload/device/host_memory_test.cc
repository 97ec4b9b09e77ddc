// SPDX-License-Identifier: Apache-2.0
#include "offload/device/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "offload/base/proc_file.h"
#include "tests/fakes/lock_limit.h"

namespace blockswap::offload {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int64_t LockedNow() { return base::ReadProcBytes("/proc/self/status", "VmLck").value_or(-1); }

TEST(PageCeilTest, RoundsUpToWholePages) {
  EXPECT_EQ(PageCeil(0), 0);
  EXPECT_EQ(PageCeil(1), PageSize());
  EXPECT_EQ(PageCeil(PageSize()), PageSize());
  EXPECT_EQ(PageCeil(PageSize() + 1), 2 * PageSize());
}

TEST(MapPagesTest, GivesZeroedPagesAndTakesThemBack) {
  absl::StatusOr<std::byte*> data = MapPages(3 * PageSize() - 7);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*data) % static_cast<uintptr_t>(PageSize()), 0u);
  EXPECT_EQ((*data)[3 * PageSize() - 1], std::byte{0});
  UnmapPages(*data, 3 * PageSize() - 7);
}

TEST(MapPagesTest, AnImpossibleSizeIsResourceExhausted) {
  const absl::StatusOr<std::byte*> data = MapPages(int64_t{1} << 60);
  EXPECT_EQ(data.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(data.status().message()),
              AllOf(HasSubstr("host memory"), HasSubstr(std::to_string(int64_t{1} << 60))));
}

TEST(LockPagesTest, LocksExactlyThePagesAsked) {
  const int64_t bytes = 5 * PageSize();
  std::byte* data = *MapPages(bytes);
  const int64_t before = LockedNow();
  ASSERT_TRUE(LockPages(data, bytes).ok());
  EXPECT_EQ(LockedNow() - before, bytes);
  UnlockPages(data, bytes);
  EXPECT_EQ(LockedNow(), before);
  UnmapPages(data, bytes);
}

TEST(LockPagesTest, RefusalNamesPageLockedMemoryAskedLimitAndWhatToLower) {
  const int64_t bytes = 64 * PageSize();
  std::byte* data = *MapPages(bytes);
  const ScopedLockLimit limit(16 * PageSize());
  ASSERT_TRUE(limit.active());
  const absl::Status refused = LockPages(data, bytes);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("page-locked host memory"), HasSubstr(std::to_string(bytes)),
                    HasSubstr("RLIMIT_MEMLOCK"), HasSubstr(std::to_string(16 * PageSize())),
                    HasSubstr("lower blocks_to_swap")));
  UnmapPages(data, bytes);
}

}  // namespace
}  // namespace blockswap::offload
