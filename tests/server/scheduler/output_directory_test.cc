// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/output_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "server/base/reason.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

namespace fs = std::filesystem;

class OutputDirectoryTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/outputs/tenant/job";
};

TEST_F(OutputDirectoryTest, IsMadeWithItsParentsAndUsedAgain) {
  for (int round = 0; round < 2; ++round) {
    const absl::Status ready = PrepareOutputDirectory(path_, /*has_checkpoints=*/round == 1);
    EXPECT_TRUE(ready.ok()) << ready;
  }
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_all);
}

TEST_F(OutputDirectoryTest, OneThatHasCheckpointsIsNotMadeAnew) {
  const absl::Status gone = PrepareOutputDirectory(path_, /*has_checkpoints=*/true);
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(gone), kOutputUnavailable);
  EXPECT_EQ(MetadataOf(gone).at("path"), path_);
  EXPECT_TRUE(absl::StrContains(gone.message(), path_)) << gone;
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(OutputDirectoryTest, WhatLiesInItsWayWillStayThere) {
  fs::create_directories(fs::path(path_).parent_path());
  std::ofstream(path_) << "in the way";
  const absl::Status taken = PrepareOutputDirectory(path_, /*has_checkpoints=*/false);
  EXPECT_EQ(taken.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(taken), kOutputUnavailable);
  const absl::Status below = PrepareOutputDirectory(path_ + "/deeper/job", false);
  EXPECT_EQ(below.code(), absl::StatusCode::kFailedPrecondition) << below;
}

}  // namespace
}  // namespace blockswap::server
