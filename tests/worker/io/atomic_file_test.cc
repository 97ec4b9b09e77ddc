// SPDX-License-Identifier: Apache-2.0
#include "worker/io/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/temp_directory.h"

namespace blockswap::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(AtomicFileTest, AppearsUnderItsNameOnlyWhenCommitted) {
  const TempDirectory directory;
  const std::string path = directory.Write("f", "older");
  {
    const auto file = AtomicFile::Create(path, 3);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Append("new", 3).ok());
    ASSERT_TRUE((*file)->Sync().ok());
    EXPECT_EQ(ReadFile(path), "older");
    EXPECT_EQ(ReadFile((*file)->temporary_path()), "new");
    ASSERT_TRUE((*file)->Commit().ok());
  }
  EXPECT_EQ(ReadFile(path), "new");
  EXPECT_THAT(directory.Names(), ElementsAre("f"));
}

TEST(AtomicFileTest, LeavesNothingWhenGivenUp) {
  const TempDirectory directory;
  ASSERT_TRUE((*AtomicFile::Create(directory.Path("f"), 3))->Append("new", 3).ok());
  EXPECT_THAT(directory.Names(), IsEmpty());
}

TEST(AtomicFileTest, TwoWritersOfOneNameDoNotMix) {
  const TempDirectory directory;
  const auto first = AtomicFile::Create(directory.Path("f"), 1);
  const auto second = AtomicFile::Create(directory.Path("f"), 1);
  ASSERT_TRUE((*first)->Append("1", 1).ok() && (*second)->Append("2", 1).ok());
  ASSERT_TRUE((*first)->Commit().ok() && (*second)->Commit().ok());
  EXPECT_EQ(ReadFile(directory.Path("f")), "2");
  EXPECT_THAT(directory.Names(), ElementsAre("f"));
}

// F014: what a killed writer left behind goes, and nothing else.
TEST(AtomicFileTest, RemovesWhatKilledWritersLeft) {
  const TempDirectory directory;
  for (const char* name :
       {".a.safetensors.tmp-0123456789abcdef", ".b.tmp-012345678", ".tmp-0123456789abcdef",
        "c.tmp-0123456789abcdef", ".d.tmp-0123456789abcdeg", "e"}) {
    directory.Write(name, "");
  }
  RemoveStaleTemporaries(directory.path());
  EXPECT_THAT(directory.Names(),
              ElementsAre(".b.tmp-012345678", ".d.tmp-0123456789abcdeg", ".tmp-0123456789abcdef",
                          "c.tmp-0123456789abcdef", "e"));
  RemoveStaleTemporaries(directory.Path("none"));
}

TEST(AtomicFileTest, KnowsTheDirectoryOfAPath) {
  EXPECT_EQ(DirectoryOf("a"), ".");
  EXPECT_EQ(DirectoryOf("/a"), "/");
  EXPECT_EQ(DirectoryOf("/a/b"), "/a");
  EXPECT_NE(RandomSuffix(), RandomSuffix());
}

TEST(AtomicFileTest, ReportsFreeSpace) {
  const TempDirectory directory;
  EXPECT_GT(*FreeDiskBytes(directory.path()), 0);
  EXPECT_TRUE(absl::IsNotFound(FreeDiskBytes(directory.Path("none")).status()));
}

}  // namespace
}  // namespace blockswap::worker
