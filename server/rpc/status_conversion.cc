// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/status_conversion.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/base/log.h"
#include "server/base/reason.h"

namespace blockswap::server {
namespace {

constexpr char kBadRequestUrl[] = "type.googleapis.com/google.rpc.BadRequest";
constexpr int kRetrySeconds = 1;

absl::Status WithViolations(absl::Status status, const std::vector<Violation>& violations) {
  google::rpc::BadRequest details;
  for (const Violation& violation : violations) {
    auto* field = details.add_field_violations();
    field->set_field(violation.field);
    field->set_description(violation.description);
  }
  status.SetPayload(kBadRequestUrl, absl::Cord(details.SerializeAsString()));
  return status;
}

std::string Listed(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& violation : violations) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", violation.field, ": ", violation.description);
  }
  return text;
}

const char* DefaultReason(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return "SPEC_INVALID";
    case absl::StatusCode::kNotFound:
      return "NOT_FOUND";
    case absl::StatusCode::kAlreadyExists:
      return "JOB_EXISTS";
    case absl::StatusCode::kPermissionDenied:
      return "PATH_NOT_ALLOWED";
    case absl::StatusCode::kFailedPrecondition:
      return "INVALID_STATE";
    case absl::StatusCode::kResourceExhausted:
      return "QUEUE_FULL";
    case absl::StatusCode::kUnavailable:
      return "SHUTTING_DOWN";
    case absl::StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case absl::StatusCode::kOutOfRange:
      return "RESUME_TOKEN_EXPIRED";
    case absl::StatusCode::kDataLoss:
      return "FILE_CORRUPT";
    case absl::StatusCode::kCancelled:
      return "CANCELLED";
    case absl::StatusCode::kUnauthenticated:
      return "TOKEN_MISSING";
    default:
      return "BUG";
  }
}

}  // namespace

absl::Status SpecInvalid(const std::vector<Violation>& violations) {
  return WithReason(WithViolations(absl::InvalidArgumentError(
                                       absl::StrCat("the job is not valid: ", Listed(violations))),
                                   violations),
                    "SPEC_INVALID");
}

std::vector<Violation> ViolationsOf(const absl::Status& status) {
  std::vector<Violation> violations;
  const auto payload = status.GetPayload(kBadRequestUrl);
  google::rpc::BadRequest details;
  if (!payload.has_value() || !details.ParseFromString(std::string(*payload))) return violations;
  for (const auto& found : details.field_violations()) {
    violations.push_back({found.field(), found.description()});
  }
  return violations;
}

absl::Status PathNotAllowed(const std::vector<Violation>& violations) {
  return WithReason(
      WithViolations(
          absl::PermissionDeniedError(absl::StrCat("path outside its root: ", Listed(violations))),
          violations),
      "PATH_NOT_ALLOWED", {{"field", violations.empty() ? std::string() : violations[0].field}});
}

grpc::StatusCode ToGrpcCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return grpc::StatusCode::OK;
    case absl::StatusCode::kCancelled:
      return grpc::StatusCode::CANCELLED;
    case absl::StatusCode::kUnknown:
      return grpc::StatusCode::UNKNOWN;
    case absl::StatusCode::kInvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case absl::StatusCode::kDeadlineExceeded:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case absl::StatusCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case absl::StatusCode::kAlreadyExists:
      return grpc::StatusCode::ALREADY_EXISTS;
    case absl::StatusCode::kPermissionDenied:
      return grpc::StatusCode::PERMISSION_DENIED;
    case absl::StatusCode::kResourceExhausted:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case absl::StatusCode::kFailedPrecondition:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case absl::StatusCode::kAborted:
      return grpc::StatusCode::ABORTED;
    case absl::StatusCode::kOutOfRange:
      return grpc::StatusCode::OUT_OF_RANGE;
    case absl::StatusCode::kUnimplemented:
      return grpc::StatusCode::UNIMPLEMENTED;
    case absl::StatusCode::kInternal:
      return grpc::StatusCode::INTERNAL;
    case absl::StatusCode::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case absl::StatusCode::kDataLoss:
      return grpc::StatusCode::DATA_LOSS;
    case absl::StatusCode::kUnauthenticated:
      return grpc::StatusCode::UNAUTHENTICATED;
    default:
      return grpc::StatusCode::UNKNOWN;
  }
}

absl::StatusCode FromGrpcCode(grpc::StatusCode code) {
  for (int candidate = 0; candidate <= 16; ++candidate) {
    const auto absl_code = static_cast<absl::StatusCode>(candidate);
    if (ToGrpcCode(absl_code) == code) return absl_code;
  }
  return absl::StatusCode::kUnknown;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const grpc::StatusCode code = ToGrpcCode(status.code());
  const std::string message(status.message());
  if (code == grpc::StatusCode::INTERNAL || code == grpc::StatusCode::UNKNOWN) {
    LogError("rpc: {}", status.ToString());
  }
  google::rpc::Status details;
  details.set_code(static_cast<int>(code));
  details.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_domain("blockswap");
  const std::string reason = ReasonOf(status);
  info.set_reason(reason.empty() ? DefaultReason(status.code()) : reason);
  for (const auto& [key, value] : MetadataOf(status)) (*info.mutable_metadata())[key] = value;
  details.add_details()->PackFrom(info);
  const auto bad_request = status.GetPayload(kBadRequestUrl);
  if (bad_request.has_value()) {
    auto* any = details.add_details();
    any->set_type_url(kBadRequestUrl);
    any->set_value(std::string(*bad_request));
  }
  if (code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::RESOURCE_EXHAUSTED) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(kRetrySeconds);
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(code, message, details.SerializeAsString());
}

}  // namespace blockswap::server
