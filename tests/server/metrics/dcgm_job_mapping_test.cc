// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/dcgm_job_mapping.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

class DcgmJobMappingTest : public ::testing::Test {
 protected:
  std::string File(const std::string& name) const {
    std::ifstream file(directory_.path() + "/" + name);
    if (!file) return "none";
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static SlotMetrics::Worker On(const std::string& gpu, const std::string& job) {
    return {gpu, job, gpu, "", "m", 1};
  }

  TemporaryDirectory directory_;
  DcgmJobMapping mapping_{directory_.path()};
};

TEST_F(DcgmJobMappingTest, FileOfAGpuNamesItsJob) {
  ASSERT_TRUE(mapping_.Update({On("cuda-0", "digits-1"), On("cuda-3", "digits-2")}).ok());
  EXPECT_EQ(File("0"), "digits-1\n");
  EXPECT_EQ(File("3"), "digits-2\n");
}

TEST_F(DcgmJobMappingTest, GpuThatIsFreeAgainHasAnEmptyFile) {
  ASSERT_TRUE(mapping_.Update({On("cuda-0", "digits-1")}).ok());
  ASSERT_TRUE(mapping_.Update({}).ok());
  EXPECT_EQ(File("0"), "");
  ASSERT_TRUE(mapping_.Update({On("cuda-0", "digits-2")}).ok());
  EXPECT_EQ(File("0"), "digits-2\n");
}

TEST_F(DcgmJobMappingTest, PartOfAGpuHasAFileOfItsOwn) {
  ASSERT_TRUE(
      mapping_.Update({On("cuda-0-mig-7", "digits-1"), On("cuda-0-mig-9-1", "digits-2")}).ok());
  EXPECT_EQ(File("0.7"), "digits-1\n");
  EXPECT_EQ(File("0.9"), "digits-2\n");
}

TEST_F(DcgmJobMappingTest, HostDeviceIsNoGpu) {
  ASSERT_TRUE(mapping_.Update({On("host", "digits-1")}).ok());
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(DcgmJobMappingTest, LeavesNothingButTheFiles) {
  ASSERT_TRUE(mapping_.Update({On("cuda-0", "digits-1")}).ok());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
    EXPECT_EQ(entry.path().filename(), "0");
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(DcgmJobMappingTest, DirectoryThatCannotBeWrittenIsUnavailable) {
  DcgmJobMapping nowhere(directory_.path() + "/none");
  const absl::Status status = nowhere.Update({On("cuda-0", "digits-1")});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  std::filesystem::create_directory(directory_.path() + "/none");
  EXPECT_TRUE(nowhere.Update({On("cuda-0", "digits-1")}).ok());
  EXPECT_EQ(File("none/0"), "digits-1\n");
}

}  // namespace
}  // namespace blockswap::server
