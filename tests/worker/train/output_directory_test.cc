// SPDX-License-Identifier: Apache-2.0
#include "worker/train/output_directory.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

class OutputDirectoryTest : public ::testing::Test {
 protected:
  OutputDirectoryTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "blockswap-output-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~OutputDirectoryTest() override { std::filesystem::remove_all(root_); }

  absl::Status ClaimAs(const JobIdentity& identity) const {
    return OutputDirectory::Claim(root_ + "/out", "lora", identity).status();
  }
  void Touch(const std::string& name) const {
    std::filesystem::create_directories(root_ + "/out");
    std::ofstream(root_ + "/out/" + name) << "precious";
  }

  std::string root_;
  const JobIdentity mine_ = {{"name", "a"}, {"training.seed", "1"}};
  const JobIdentity other_ = {{"name", "a"}, {"training.seed", "2"}};
};

TEST_F(OutputDirectoryTest, IsMadeAndClaimedAgainByTheSameJob) {
  EXPECT_TRUE(ClaimAs(mine_).ok());
  EXPECT_TRUE(ClaimAs(mine_).ok());
  EXPECT_TRUE(std::filesystem::is_directory(root_ + "/out/checkpoints"));
}

TEST_F(OutputDirectoryTest, ForgetsWhatAKilledSaveLeft) {
  Touch(".lora.safetensors.tmp-0123456789abcdef");
  EXPECT_TRUE(ClaimAs(mine_).ok());
  EXPECT_FALSE(std::filesystem::exists(root_ + "/out/.lora.safetensors.tmp-0123456789abcdef"));
}

TEST_F(OutputDirectoryTest, AnotherJobIsRefusedAndToldWhy) {
  ASSERT_TRUE(ClaimAs(mine_).ok());
  const absl::Status refused = ClaimAs(other_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("training.seed is 1 there and 2 here"));
}

TEST_F(OutputDirectoryTest, OutputsOfAnUnknownJobAreNeverOverwritten) {
  for (const char* file : {"lora.safetensors", "lora-step00000010.safetensors", "metrics.jsonl"}) {
    Touch(file);
    const absl::Status refused = ClaimAs(mine_);
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << file;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(file));
    std::filesystem::remove_all(root_ + "/out");
  }
  Touch("notes.txt");
  EXPECT_TRUE(ClaimAs(mine_).ok()) << "a file that no job writes is no reason to refuse";
}

TEST_F(OutputDirectoryTest, OneProcessAtATime) {
  const auto held = OutputDirectory::Claim(root_ + "/out", "lora", mine_);
  ASSERT_TRUE(held.ok());
  const absl::Status refused = ClaimAs(mine_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("in use"));
}

}  // namespace
}  // namespace blockswap::worker
