// SPDX-License-Identifier: Apache-2.0
#include "worker/io/regular_file.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/temp_directory.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

TEST(RegularFileTest, ReadsTextUpToALimit) {
  const TempDirectory directory;
  const std::string path = directory.Write("f", "hello");
  EXPECT_EQ(*ReadTextFile(path, 5), "hello");
  EXPECT_THAT(ReadTextFile(path, 4).status().ToString(), HasSubstr("is too long"));
  EXPECT_EQ(*ReadTextFile(directory.Write("empty", ""), 4), "");
  EXPECT_TRUE(absl::IsNotFound(ReadTextFile(directory.Path("none"), 4).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadTextFile(directory.path(), 4).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadTextFile(path + std::string(1, '\0'), 4).status()));
}

TEST(RegularFileTest, ChoosesCodesByTheSystemsError) {
  EXPECT_TRUE(absl::IsResourceExhausted(ErrnoStatus(ENOSPC, "x")));
  EXPECT_TRUE(absl::IsResourceExhausted(ErrnoStatus(EDQUOT, "x")));
  EXPECT_TRUE(absl::IsNotFound(ErrnoStatus(ENOENT, "x")));
  EXPECT_TRUE(absl::IsPermissionDenied(ErrnoStatus(EROFS, "x")));
  EXPECT_TRUE(absl::IsUnavailable(ErrnoStatus(EIO, "x")));
}

TEST(RegularFileTest, OwnedFdMovesAndCloses) {
  const TempDirectory directory;
  auto file = OpenRegularFile(directory.Write("f", "x"));
  ASSERT_TRUE(file.ok());
  OwnedFd other = std::move(file->fd);
  EXPECT_EQ(file->fd.get(), -1);
  EXPECT_GE(other.get(), 0);
  other = OwnedFd();
  EXPECT_EQ(other.get(), -1);
}

}  // namespace
}  // namespace blockswap::worker
