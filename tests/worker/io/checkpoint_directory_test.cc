// SPDX-License-Identifier: Apache-2.0
#include "worker/io/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tests/worker/data/temp_directory.h"
#include "worker/io/atomic_file.h"

namespace blockswap::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::Status WriteParts(const std::string& directory, int64_t step, size_t bytes = 64) {
  for (const char* name : {"adapter.safetensors", "optimizer.safetensors"}) {
    const absl::Status status = WriteFileAtomically(
        absl::StrCat(directory, "/", name), std::string(bytes, static_cast<char>('a' + step % 26)));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<CommittedCheckpoint> Commit(const std::string& parent, int64_t step,
                                           size_t bytes = 64) {
  return CommitCheckpoint(
      parent, step, static_cast<int64_t>(2 * bytes), {{"step", absl::StrCat(step)}},
      [&](const std::string& directory) { return WriteParts(directory, step, bytes); });
}

TEST(CheckpointDirectoryTest, CommitsVerifiesAndFindsTheNewest) {
  const TempDirectory directory;
  const std::string parent = directory.Path("checkpoints");
  for (const int64_t step : {5, 10, 100'000'000}) {
    const auto committed = Commit(parent, step);
    ASSERT_TRUE(committed.ok()) << committed.status();
    EXPECT_EQ(committed->bytes, 128);
    const auto verified = VerifyCheckpoint(committed->directory);
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_EQ(verified->manifest_sha256, committed->manifest_sha256);
    EXPECT_EQ(verified->properties, committed->properties);
  }
  std::vector<std::string> skipped;
  const auto newest = FindNewestCheckpoint(parent, &skipped);
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->step, 100'000'000);
  EXPECT_THAT(skipped, IsEmpty());
  EXPECT_THAT(directory.Names("checkpoints"),
              ElementsAre("step-00000005", "step-00000010", "step-100000000"));
}

// F013: the newest complete one is taken; what is skipped is named with the reason; a broken one
// asked for by path is refused.
TEST(CheckpointDirectoryTest, FallsBackFromBrokenCheckpointsAndSaysWhy) {
  const TempDirectory directory;
  for (const int64_t step : {1, 2, 3, 4}) ASSERT_TRUE(Commit(directory.path(), step).ok());
  std::filesystem::remove(directory.Path("step-00000004/manifest.json"));
  std::vector<std::string> skipped;
  EXPECT_EQ(FindNewestCheckpoint(directory.path(), &skipped)->step, 3);
  EXPECT_THAT(skipped, ElementsAre("step-00000004: manifest is missing"));

  std::filesystem::resize_file(directory.Path("step-00000003/optimizer.safetensors"), 63);
  skipped.clear();
  EXPECT_EQ(FindNewestCheckpoint(directory.path(), &skipped)->step, 2);
  EXPECT_THAT(skipped[1], HasSubstr("optimizer.safetensors has 63 bytes, the manifest says 64"));

  directory.Write("step-00000002/adapter.safetensors", std::string(64, '\0'));
  skipped.clear();
  EXPECT_EQ(FindNewestCheckpoint(directory.path(), &skipped)->step, 1);
  EXPECT_THAT(skipped[2], HasSubstr("step-00000002: adapter.safetensors has other content"));

  const auto explicit_path = VerifyCheckpoint(directory.Path("step-00000002"));
  EXPECT_TRUE(absl::IsDataLoss(explicit_path.status()));
  EXPECT_THAT(explicit_path.status().ToString(), HasSubstr("adapter.safetensors"));
}

// F017: a power loss that leaves empty files behind costs one checkpoint, not the run.
TEST(CheckpointDirectoryTest, SkipsACheckpointOfEmptyFiles) {
  const TempDirectory directory;
  for (const int64_t step : {1, 2}) ASSERT_TRUE(Commit(directory.path(), step).ok());
  for (const std::string& name : directory.Names("step-00000002")) {
    std::filesystem::resize_file(directory.Path("step-00000002/" + name), 0);
  }
  std::vector<std::string> skipped;
  EXPECT_EQ(FindNewestCheckpoint(directory.path(), &skipped)->step, 1);
  EXPECT_THAT(skipped, ElementsAre("step-00000002: manifest is empty"));
}

TEST(CheckpointDirectoryTest, FindsNothingInAnEmptyOrMissingDirectory) {
  const TempDirectory directory;
  EXPECT_TRUE(absl::IsNotFound(FindNewestCheckpoint(directory.path(), nullptr).status()));
  EXPECT_TRUE(absl::IsNotFound(FindNewestCheckpoint(directory.Path("none"), nullptr).status()));
}

TEST(CheckpointDirectoryTest, RemovesTemporariesAndTakesBackWhatWasMovedAside) {
  const TempDirectory directory;
  ASSERT_TRUE(Commit(directory.path(), 7).ok());
  directory.Write(".step-00000009.tmp-0123456789abcdef/adapter.safetensors", "half");
  std::filesystem::rename(directory.Path("step-00000007"),
                          directory.Path(".step-00000007.old-0123456789abcdef"));
  EXPECT_EQ(FindNewestCheckpoint(directory.path(), nullptr)->step, 7);
  EXPECT_THAT(directory.Names(), ElementsAre("step-00000007"));
}

TEST(CheckpointDirectoryTest, ReplacesACheckpointOfTheSameStep) {
  const TempDirectory directory;
  ASSERT_TRUE(Commit(directory.path(), 7, 10).ok());
  ASSERT_TRUE(Commit(directory.path(), 7, 20).ok());
  EXPECT_EQ(VerifyCheckpoint(directory.Path("step-00000007"))->bytes, 40);
  EXPECT_THAT(directory.Names(), ElementsAre("step-00000007"));
}

TEST(CheckpointDirectoryTest, LeavesNothingWhenTheWriterFails) {
  const TempDirectory directory;
  ASSERT_TRUE(Commit(directory.path(), 1).ok());
  const auto failed = CommitCheckpoint(directory.path(), 2, 1, {}, [](const std::string& inside) {
    EXPECT_TRUE(WriteParts(inside, 2).ok());
    return absl::InternalError("serialisation failed");
  });
  EXPECT_TRUE(absl::IsInternal(failed.status()));
  EXPECT_THAT(directory.Names(), ElementsAre("step-00000001"));
}

// F015: the space is asked for before anything is written.
TEST(CheckpointDirectoryTest, ChecksFreeSpaceFirst) {
  const TempDirectory directory;
  bool written = false;
  const auto failed =
      CommitCheckpoint(directory.path(), 2, int64_t{1} << 60, {}, [&](const std::string&) {
        written = true;
        return absl::OkStatus();
      });
  EXPECT_TRUE(absl::IsResourceExhausted(failed.status())) << failed.status();
  EXPECT_THAT(failed.status().ToString(), HasSubstr("bytes needed, "));
  EXPECT_FALSE(written);
}

// F015: a file-size limit in the middle of a save.
TEST(CheckpointDirectoryTest, SurvivesAFileSizeLimit) {
  const TempDirectory directory;
  ASSERT_TRUE(Commit(directory.path(), 1).ok());
  signal(SIGXFSZ, SIG_IGN);
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit low = {100'000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const auto failed = Commit(directory.path(), 2, 200'000);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(failed.status())) << failed.status();
  EXPECT_THAT(failed.status().ToString(), HasSubstr("200000 bytes needed, 100000 written"));
  EXPECT_THAT(directory.Names(), ElementsAre("step-00000001"));
  EXPECT_TRUE(VerifyCheckpoint(directory.Path("step-00000001")).ok());
  EXPECT_TRUE(Commit(directory.path(), 2, 200'000).ok())
      << "once there is space the save works again";
}

// F015: a real full file system; needs the right to mount one.
TEST(CheckpointDirectoryTest, SurvivesAFullFileSystem) {
  const TempDirectory directory;
  const std::string small = directory.Make("small");
  if (mount("tmpfs", small.c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "cannot mount a small file system here";
  }
  const auto unmount = absl::MakeCleanup([&] { umount(small.c_str()); });
  ASSERT_TRUE(Commit(small, 1).ok());
  // The estimate is too low, so that the disk fills up while the files are written.
  const auto failed = CommitCheckpoint(
      small, 2, 1000, {}, [](const std::string& inside) { return WriteParts(inside, 2, 200'000); });
  EXPECT_TRUE(absl::IsResourceExhausted(failed.status())) << failed.status();
  EXPECT_THAT(failed.status().ToString(), HasSubstr("out of space while writing"));
  EXPECT_THAT(directory.Names("small"), ElementsAre("step-00000001"));
  EXPECT_TRUE(VerifyCheckpoint(small + "/step-00000001").ok());
  EXPECT_TRUE(Commit(small, 2).ok());
}

TEST(CheckpointDirectoryTest, PrunesTheOldestAndNeverTheNewestGoodOne) {
  const TempDirectory directory;
  for (const int64_t step : {1, 2, 3, 4, 5}) ASSERT_TRUE(Commit(directory.path(), step).ok());
  ASSERT_TRUE(PruneCheckpoints(directory.path(), 3).ok());
  EXPECT_THAT(directory.Names(), ElementsAre("step-00000003", "step-00000004", "step-00000005"));
  // The newest is damaged: keeping one means keeping the newest good one.
  directory.Write("step-00000005/adapter.safetensors", std::string(64, '?'));
  ASSERT_TRUE(PruneCheckpoints(directory.path(), 0).ok());
  EXPECT_THAT(directory.Names(), ElementsAre("step-00000004", "step-00000005"));
}

TEST(CheckpointDirectoryTest, RefusesManifestsThatLeadElsewhere) {
  const TempDirectory directory;
  directory.Write("step-00000001/manifest.json",
                  R"({"format":"blockswap-checkpoint","version":1,"step":1,"properties":{},)"
                  R"("files":[{"name":"../secret","bytes":1,"sha256":""}]})");
  EXPECT_THAT(VerifyCheckpoint(directory.Path("step-00000001")).status().ToString(),
              HasSubstr("malformed file entry"));
  directory.Write("step-00000001/manifest.json", "[[[[[[[[[[[[[[[[[[[[[[[[[[");
  EXPECT_TRUE(absl::IsDataLoss(VerifyCheckpoint(directory.Path("step-00000001")).status()));
  ASSERT_TRUE(Commit(directory.path(), 2).ok());
  std::filesystem::rename(directory.Path("step-00000002"), directory.Path("step-00000003"));
  EXPECT_THAT(VerifyCheckpoint(directory.Path("step-00000003")).status().ToString(),
              HasSubstr("manifest is of step 2"));
}

}  // namespace
}  // namespace blockswap::worker
