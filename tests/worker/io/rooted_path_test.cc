// SPDX-License-Identifier: Apache-2.0
#include "worker/io/rooted_path.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

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

// Row 33 of the fault list: however it is written, the kernel's walk decides, not the spelling.
TEST_F(RootedPathTest, SpellingsOfAWayOutAreAllRefused) {
  for (const char* way_out : {"../secret", "a/../../secret", "./../secret", "a/./../../secret",
                              "a//../../secret", "../root/../secret", "/etc/passwd", "//etc/passwd",
                              "/proc/self/root/etc/passwd", "/proc/self/cwd", "/"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(ResolveBelow(root_, way_out).status())) << way_out;
    EXPECT_TRUE(absl::IsPermissionDenied(OpenBelow(root_, way_out, O_RDONLY).status())) << way_out;
  }
  // Nobody decodes these: they are names of files that are not there.
  for (const char* literal : {"%2e%2e/secret", "..%2fsecret", "\xe2\x80\xa5/secret",
                              "\xef\xbc\x8e\xef\xbc\x8e/secret", "..\\secret"}) {
    EXPECT_TRUE(absl::IsNotFound(ResolveBelow(root_, literal).status())) << literal;
    EXPECT_TRUE(absl::IsNotFound(OpenBelow(root_, literal, O_RDONLY).status())) << literal;
  }
}

// Row 34: the link is exchanged between the check and the opening.
TEST_F(RootedPathTest, LinkThatIsExchangedAfterTheCheckOpensNothingOutside) {
  const std::string path = root_ + "/weights";
  ASSERT_EQ(symlink("a/b.txt", path.c_str()), 0);
  ASSERT_TRUE(ResolveBelow(root_, "weights").ok());
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(symlink("../secret", path.c_str()), 0);
  EXPECT_TRUE(OpenRegularFile(path).ok()) << "without roots nothing is restricted";
  const ScopedOpenRoots roots({root_});
  EXPECT_TRUE(absl::IsPermissionDenied(OpenRegularFile(path).status()));
  EXPECT_TRUE(OpenRegularFile(root_ + "/a/b.txt").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(OpenRegularFile(directory_.Path("secret")).status()));
}

TEST_F(RootedPathTest, LinkThatChangesAllTheTimeIsNeverFollowedOutside) {
  const std::string path = root_ + "/weights";
  ASSERT_EQ(symlink("a/b.txt", path.c_str()), 0);
  struct stat secret {};
  ASSERT_EQ(stat(directory_.Path("secret").c_str(), &secret), 0);
  std::atomic<bool> done{false};
  std::thread swapper([&] {
    for (int i = 0; !done.load(); ++i) {
      const std::string next = root_ + "/next";
      if (symlink(i % 2 == 0 ? "../secret" : "a/b.txt", next.c_str()) != 0) return;
      rename(next.c_str(), path.c_str());
    }
  });
  const ScopedOpenRoots roots({root_});
  int opened = 0, refused = 0;
  // Until both have been seen often; the number bounds a machine on which one never is.
  for (int i = 0; i < 2000000 && (opened < 200 || refused < 200); ++i) {
    const auto file = OpenRegularFile(path);
    struct stat facts {};
    if (!file.ok()) {
      ++refused;
      continue;
    }
    ++opened;
    ASSERT_EQ(fstat(file->fd.get(), &facts), 0);
    ASSERT_NE(facts.st_ino, secret.st_ino);
  }
  done.store(true);
  swapper.join();
  EXPECT_GT(opened, 0);
  EXPECT_GT(refused, 0);
}

TEST_F(RootedPathTest, FifosDevicesAndDirectoriesAreNoFilesAndKeepNobodyWaiting) {
  ASSERT_EQ(mkfifo((root_ + "/fifo").c_str(), 0600), 0);
  const ScopedOpenRoots roots({root_, "/dev"});
  for (const std::string& path : {root_ + "/fifo", std::string("/dev/zero"), root_ + "/a"})
    EXPECT_TRUE(absl::IsInvalidArgument(OpenRegularFile(path).status())) << path;
}

TEST_F(RootedPathTest, RootsOfAThreadEndWithTheirScopeAndAreItsOwn) {
  {
    const ScopedOpenRoots outer({root_});
    {
      const ScopedOpenRoots inner({directory_.Path("root/a")});
      EXPECT_TRUE(OpenRegularFile(root_ + "/a/b.txt").ok());
    }
    EXPECT_FALSE(OpenRegularFile(directory_.Path("secret")).ok());
    bool other_thread = false;
    std::thread([&] { other_thread = OpenRegularFile(directory_.Path("secret")).ok(); }).join();
    EXPECT_TRUE(other_thread);
  }
  EXPECT_TRUE(OpenRegularFile(directory_.Path("secret")).ok());
}

}  // namespace
}  // namespace blockswap::worker
