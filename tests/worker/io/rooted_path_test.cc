// SPDX-License-Identifier: Apache-2.0
#include "worker/io/rooted_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/worker/data/temp_directory.h"

namespace blockswap::worker {
namespace {

class RootedPathTest : public ::testing::Test {
 protected:
  RootedPathTest() : root_(directory_.Make("root")) {
    directory_.Write("root/a/b.txt", "x");
    directory_.Write("secret", "x");
  }
  const TempDirectory directory_;
  const std::string root_;
};

TEST_F(RootedPathTest, ResolvesRelativeAndAbsolutePathsBelow) {
  EXPECT_EQ(*ResolveBelow(root_, "a/b.txt"), root_ + "/a/b.txt");
  EXPECT_EQ(*ResolveBelow(root_ + "/", root_ + "/a/b.txt"), root_ + "/a/b.txt");
  EXPECT_EQ(*ResolveBelow(root_, root_), root_);
  EXPECT_EQ(*ResolveBelow(root_, "."), root_);
  EXPECT_TRUE(absl::IsNotFound(ResolveBelow(root_, "a/c.txt").status()));
  EXPECT_TRUE(absl::IsNotFound(ResolveBelow(directory_.Path("none"), "a").status()));
}

TEST_F(RootedPathTest, ARootThatIsALinkIsFollowedAndMayBeSpelledEitherWay) {
  ASSERT_EQ(symlink("root", directory_.Path("alias").c_str()), 0);
  EXPECT_TRUE(ResolveBelow(directory_.Path("alias"), "a/b.txt").ok());
  EXPECT_TRUE(ResolveBelow(directory_.Path("alias"), root_ + "/a/b.txt").ok());
}

// Hugging Face caches are links to blobs beside them: links that stay below are followed.
TEST_F(RootedPathTest, FollowsLinksThatStayBelowAndNoOthers) {
  ASSERT_EQ(symlink("../a/b.txt", (directory_.Make("root/snap") + "/inside").c_str()), 0);
  ASSERT_EQ(symlink("../../secret", directory_.Path("root/snap/outside").c_str()), 0);
  ASSERT_EQ(symlink("loop", directory_.Path("root/loop").c_str()), 0);
  EXPECT_TRUE(ResolveBelow(root_, "snap/inside").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(ResolveBelow(root_, "snap/outside").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(ResolveBelow(root_, "loop").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(ResolveBelow(root_, "../secret").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(ResolveBelow(root_, root_ + "x").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(ResolveBelow(root_, std::string("a\0b", 3)).status()));
}

TEST_F(RootedPathTest, WithoutARootEverythingThatExistsIsAllowed) {
  EXPECT_EQ(*ResolveBelow("", directory_.Path("secret")), directory_.Path("secret"));
  EXPECT_TRUE(absl::IsNotFound(ResolveBelow("", directory_.Path("none")).status()));
  EXPECT_EQ(*ResolveBelow("", "."), (std::filesystem::current_path() / ".").string());
}

}  // namespace
}  // namespace blockswap::worker
