// SPDX-License-Identifier: Apache-2.0
#include "offload/device/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "offload/base/byte_size.h"
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

class PopulatePagesTest : public ::testing::Test {
 protected:
  PopulatePagesTest() : fd_(memfd_create("pages", MFD_CLOEXEC)) {}
  ~PopulatePagesTest() override { close(fd_); }
  int64_t FileMemory() const {
    struct stat facts {};
    EXPECT_EQ(fstat(fd_, &facts), 0);
    return facts.st_blocks * 512;
  }
  const int fd_;
};

TEST_F(PopulatePagesTest, GivesAllPagesTheirMemoryAndKeepsWhatIsThere) {
  const int64_t bytes = 20 * base::kMiB + PageSize();  // several pieces
  ASSERT_EQ(ftruncate(fd_, bytes), 0);
  std::byte* data = *MapSharedPages(fd_, 0, bytes);
  data[5] = std::byte{7};
  const absl::Status populated = PopulatePages(data, bytes);
  if (absl::IsUnimplemented(populated)) GTEST_SKIP() << populated;
  EXPECT_TRUE(populated.ok()) << populated;
  EXPECT_EQ(FileMemory(), bytes);
  EXPECT_EQ(data[5], std::byte{7});
  UnmapPages(data, bytes);
}

TEST_F(PopulatePagesTest, PagesThatCannotBeHadAreAnErrorAndEndNothing) {
  const int64_t bytes = 20 * base::kMiB;
  ASSERT_EQ(ftruncate(fd_, bytes / 2), 0);
  std::byte* data = *MapSharedPages(fd_, 0, bytes);
  const absl::Status refused = PopulatePages(data, bytes);
  if (absl::IsUnimplemented(refused)) GTEST_SKIP() << refused;
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("host memory exhausted"));
  UnmapPages(data, bytes);
}

TEST_F(PopulatePagesTest, PagesOfAFileAreThereWithoutAMapping) {
  ASSERT_EQ(ftruncate(fd_, 8 * PageSize()), 0);
  ASSERT_TRUE(AllocateFilePages(fd_, 2 * PageSize(), 3 * PageSize() - 1).ok());
  EXPECT_EQ(FileMemory(), 3 * PageSize());
  EXPECT_EQ(AllocateFilePages(-1, 0, PageSize()).code(), absl::StatusCode::kResourceExhausted);
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
