// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/command.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/testing/tiny_job.h"
#include "worker/train/failure.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

TEST(CommandTest, EveryViolationIsInOneStatusThatMeansInvalidInput) {
  const testing::TinyJob job;
  const absl::StatusOr<JobInspection> opened = OpenJob(
      LoadJobFile(job.job_file(), {"training.learning_rate=-1", "network.rank=0"}, Roots{}));
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("training.learning_rate"));
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("network.rank"));
  const ExitReport report = ToExitReport(opened.status());
  EXPECT_EQ(report.code, ExitCode::kInvalidInput);
  EXPECT_EQ(report.reason, "INVALID_SPEC");
}

TEST(CommandTest, AGoodJobOpens) {
  const testing::TinyJob job;
  const absl::StatusOr<JobInspection> opened = OpenJob(LoadJobFile(job.job_file(), {}, Roots{}));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->total_steps, 8);
}

}  // namespace
}  // namespace blockswap::worker
