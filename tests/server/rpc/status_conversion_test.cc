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

template <typename Detail>
bool Find(const grpc::Status& status, Detail* detail) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  for (const auto& any : details.details()) {
    if (any.UnpackTo(detail)) return true;
  }
  return false;
}

TEST(StatusConversionTest, WhatIsMissingOrTakenIsNamedAsAResource) {
  google::rpc::ResourceInfo resource;
  ASSERT_TRUE(Find(ToGrpcStatus(JobNotFound("a")), &resource));
  EXPECT_EQ(resource.resource_type(), "blockswap.v1.Job");
  EXPECT_EQ(resource.resource_name(), "jobs/a");
  ASSERT_TRUE(Find(ToGrpcStatus(WithReason(absl::NotFoundError("none"), "CHECKPOINT_NOT_FOUND",
                                           {{"job", "a"}, {"checkpoint", "jobs/a/checkpoints/3"}})),
                   &resource));
  EXPECT_EQ(resource.resource_type(), "blockswap.v1.Checkpoint");
  EXPECT_EQ(resource.resource_name(), "jobs/a/checkpoints/3");
}

TEST(StatusConversionTest, PreconditionsNameTheirKindAndWhatIsAllowed) {
  const grpc::Status status = ToGrpcStatus(WithReason(
      absl::FailedPreconditionError("no"), "INVALID_STATE", {{"state", "RUNNING"}, {"job", "a"}}));
  google::rpc::PreconditionFailure failure;
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(Find(status, &failure));
  ASSERT_TRUE(Find(status, &info));
  ASSERT_EQ(failure.violations_size(), 1);
  EXPECT_EQ(failure.violations(0).type(), "INVALID_STATE");
  EXPECT_EQ(failure.violations(0).subject(), "jobs/a");
  EXPECT_EQ(info.metadata().at("allowed"), "cancel, suspend, update, checkpoint, sample");
}

TEST(StatusConversionTest, LimitsSayWhichAndWhenToTryAgain) {
  const grpc::Status full = ToGrpcStatus(
      WithReason(absl::ResourceExhaustedError("full"), "QUEUE_FULL", {{"subject", "jobs"}}));
  google::rpc::QuotaFailure quota;
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(Find(full, &quota));
  EXPECT_EQ(quota.violations(0).subject(), "jobs");
  EXPECT_TRUE(Find(full, &retry));
  EXPECT_TRUE(Find(ToGrpcStatus(absl::UnavailableError("soon")), &retry));
  // Reading faster is up to the client: no wait helps.
  const grpc::Status slow =
      ToGrpcStatus(WithReason(absl::ResourceExhaustedError("slow"), "SLOW_CONSUMER"));
  EXPECT_FALSE(Find(slow, &quota));
  EXPECT_FALSE(Find(slow, &retry));
}

TEST(StatusConversionTest, BugsHaveANumberToAskFor) {
  google::rpc::RequestInfo request;
  ASSERT_TRUE(Find(ToGrpcStatus(absl::InternalError("oops")), &request));
  EXPECT_FALSE(request.request_id().empty());
  EXPECT_FALSE(Find(ToGrpcStatus(absl::NotFoundError("no")), &request));
}

// F127: trailers beyond 8 KiB never arrive, and with them neither code nor reason.
TEST(StatusConversionTest, TextsAreCutSoThatTheTrailersArrive) {
  const std::string text(1 << 20, 'x');
  std::vector<Violation> violations;
  for (int i = 0; i < 1000; ++i)
    violations.push_back({"field." + std::to_string(i), text.substr(0, 4096)});
  for (const absl::Status& status :
       {absl::InternalError(text), SpecInvalid(violations),
        WithReason(absl::FailedPreconditionError(text), "INVALID_STATE", {{"job", text}}),
        WithReason(absl::NotFoundError(text), "JOB_NOT_FOUND", {{"job", text}})}) {
    const grpc::Status cut = ToGrpcStatus(status);
    EXPECT_LE(cut.error_message().size(), 1100u);
    // In base64 that is 7 KiB at most.
    EXPECT_LE(cut.error_message().size() + cut.error_details().size() * 4 / 3, 8000u)
        << status.code();
    google::rpc::ErrorInfo info;
    EXPECT_TRUE(Find(cut, &info));
  }
  google::rpc::BadRequest request;
  ASSERT_TRUE(Find(ToGrpcStatus(SpecInvalid(violations)), &request));
  const auto& last = request.field_violations(request.field_violations_size() - 1);
  EXPECT_EQ(last.description(), std::to_string(1000 - request.field_violations_size() + 1) +
                                    " more violations; mend these first");
}

TEST(StatusConversionTest, TextThatIsNoUtf8IsReplaced) {
  EXPECT_EQ(ToGrpcStatus(absl::NotFoundError("a\xff")).error_message(), "a?");
}

}  // namespace
}  // namespace blockswap::server
