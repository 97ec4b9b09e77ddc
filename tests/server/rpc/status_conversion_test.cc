// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/status_conversion.h"

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/base/reason.h"

namespace blockswap::server {
namespace {

TEST(StatusConversionTest, EveryCodeGoesThereAndBack) {
  for (int code = 0; code <= 16; ++code) {
    const auto absl_code = static_cast<absl::StatusCode>(code);
    EXPECT_EQ(static_cast<int>(ToGrpcCode(absl_code)), code);
    EXPECT_EQ(FromGrpcCode(static_cast<grpc::StatusCode>(code)), absl_code);
  }
  EXPECT_EQ(ToGrpcCode(static_cast<absl::StatusCode>(99)), grpc::StatusCode::UNKNOWN);
}

TEST(StatusConversionTest, EveryErrorHasAnErrorInfo) {
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status =
        ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(code), "why"));
    google::rpc::Status details;
    ASSERT_TRUE(details.ParseFromString(status.error_details())) << code;
    EXPECT_EQ(details.code(), code);
    EXPECT_EQ(details.message(), "why");
    google::rpc::ErrorInfo info;
    ASSERT_GE(details.details_size(), 1);
    ASSERT_TRUE(details.details(0).UnpackTo(&info));
    EXPECT_EQ(info.domain(), "blockswap");
    EXPECT_FALSE(info.reason().empty()) << code;
  }
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(StatusConversionTest, ReasonMetadataAndViolationsArrive) {
  const grpc::Status status = ToGrpcStatus(WithReason(
      SpecInvalid({{"a.b", "is bad"}}), "SPEC_INVALID", {{"key", "value"}, {"empty", ""}}));
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::ErrorInfo info;
  google::rpc::BadRequest violations;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  ASSERT_TRUE(details.details(1).UnpackTo(&violations));
  EXPECT_EQ(info.metadata().at("key"), "value");
  EXPECT_EQ(info.metadata().count("empty"), 1u);
  EXPECT_EQ(violations.field_violations(0).field(), "a.b");
}

}  // namespace
}  // namespace blockswap::server
