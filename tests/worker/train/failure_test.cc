// SPDX-License-Identifier: Apache-2.0
#include "worker/train/failure.h"

#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

TEST(FailureTest, TheFirstWayOutIsKept) {
  absl::Status status =
      WithFailure(absl::InternalError("loss is not finite"), ExitCode::kNumerics, "NONFINITE_LOSS");
  status = WithFailure(status, ExitCode::kStorage, "DISK_FULL");
  const ExitReport report = ToExitReport(status);
  EXPECT_EQ(report.code, ExitCode::kNumerics);
  EXPECT_EQ(report.category, "NUMERICS");
  EXPECT_EQ(report.reason, "NONFINITE_LOSS");
  EXPECT_EQ(report.message, "loss is not finite");
}

TEST(FailureTest, OkStaysOk) {
  EXPECT_TRUE(WithFailure(absl::OkStatus(), ExitCode::kInternal, "INTERNAL").ok());
  EXPECT_EQ(ToExitReport(absl::OkStatus()).code, ExitCode::kOk);
}

TEST(FailureTest, EveryStatusCodeEndsTheProcessWithACategory) {
  for (int code = 1; code <= 16; ++code) {
    const ExitReport report =
        ToExitReport(absl::Status(static_cast<absl::StatusCode>(code), "fault"));
    EXPECT_NE(report.code, ExitCode::kOk) << code;
    EXPECT_FALSE(report.reason.empty()) << code;
    EXPECT_EQ(report.category.empty(), report.code == ExitCode::kCancelled) << code;
  }
}

}  // namespace
}  // namespace blockswap::worker
