// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/status_conversion.h"

#include <map>
#include <optional>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/text/utf8.h"
#include "server/base/log.h"
#include "server/base/random_text.h"
#include "server/base/reason.h"
#include "server/jobs/transitions.h"

namespace blockswap::server {
namespace {

constexpr char kBadRequestUrl[] = "type.googleapis.com/google.rpc.BadRequest";
constexpr int kRetrySeconds = 1;
// Clients take at most 8 KiB of trailers unless told otherwise, and more of them means no error
// text at all: message and details are cut so that both, encoded, stay below.
constexpr size_t kMaxMessageBytes = 1024;
constexpr size_t kMaxDetailBytes = 3584;
constexpr int kRequestIdLength = 12;
constexpr size_t kMaxMetadataBytes = 512;  // of one value

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
      return "ALREADY_EXISTS";
    case absl::StatusCode::kAborted:
      return "ABORTED";
    case absl::StatusCode::kPermissionDenied:
      return "ACCESS_DENIED";
    case absl::StatusCode::kFailedPrecondition:
      return "INVALID_STATE";
    case absl::StatusCode::kResourceExhausted:
      return "QUOTA_EXCEEDED";
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

using Metadata = std::map<std::string, std::string>;

// What the metadata of an error names, as the API names it.
google::rpc::ResourceInfo ResourceOf(const Metadata& metadata) {
  google::rpc::ResourceInfo resource;
  const auto name = [&](const char* key, const char* type, const char* collection) {
    const auto found = metadata.find(key);
    if (found == metadata.end() || !resource.resource_type().empty()) return;
    resource.set_resource_type(absl::StrCat("blockswap.v1.", type));
    resource.set_resource_name(proto::Shorten(absl::StartsWith(found->second, collection)
                                                  ? found->second
                                                  : absl::StrCat(collection, found->second),
                                              kMaxMetadataBytes));
  };
  // The narrower one first: a checkpoint's error names its job, too.
  name("checkpoint", "Checkpoint", "jobs/");
  name("attempt", "Attempt", "jobs/");
  name("template", "JobTemplate", "templates/");
  name("device", "Device", "devices/");
  name("queue", "Queue", "queues/");
  name("token", "Token", "tokens/");
  name("job", "Job", "jobs/");
  return resource;
}

bool IsLimit(const std::string& reason) {
  return reason == "QUEUE_FULL" || reason == "QUOTA_EXCEEDED" || reason == "TOO_MANY_STREAMS";
}

// The details that go with a code beside ErrorInfo and BadRequest.
void AddDetails(const google::rpc::ErrorInfo& info, const Metadata& metadata,
                google::rpc::Status* details) {
  const auto code = static_cast<grpc::StatusCode>(details->code());
  const google::rpc::ResourceInfo resource = ResourceOf(metadata);
  if ((code == grpc::StatusCode::NOT_FOUND || code == grpc::StatusCode::ALREADY_EXISTS) &&
      !resource.resource_type().empty()) {
    details->add_details()->PackFrom(resource);
  }
  if (code == grpc::StatusCode::FAILED_PRECONDITION) {
    google::rpc::PreconditionFailure failure;
    auto* violation = failure.add_violations();
    violation->set_type(info.reason());
    violation->set_subject(resource.resource_name());
    violation->set_description(proto::Shorten(details->message(), kMaxMetadataBytes));
    details->add_details()->PackFrom(failure);
  }
  const bool is_limit = code == grpc::StatusCode::RESOURCE_EXHAUSTED && IsLimit(info.reason());
  if (is_limit) {
    google::rpc::QuotaFailure failure;
    auto* violation = failure.add_violations();
    const auto subject = metadata.find("subject");
    violation->set_subject(subject == metadata.end()
                               ? "requests"
                               : proto::Shorten(subject->second, kMaxMetadataBytes));
    violation->set_description(proto::Shorten(details->message(), kMaxMetadataBytes));
    details->add_details()->PackFrom(failure);
  }
  if (is_limit || code == grpc::StatusCode::UNAVAILABLE) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(kRetrySeconds);
    details->add_details()->PackFrom(retry);
  }
}

// As many violations as fit; the last one says how many were left out.
google::rpc::BadRequest Cut(const google::rpc::BadRequest& all, size_t max_bytes) {
  google::rpc::BadRequest cut;
  for (const auto& violation : all.field_violations()) {
    auto* added = cut.add_field_violations();
    added->set_field(proto::Shorten(violation.field(), kMaxMetadataBytes));
    added->set_description(proto::Shorten(violation.description(), kMaxMetadataBytes));
    if (cut.ByteSizeLong() <= max_bytes) continue;
    cut.mutable_field_violations()->RemoveLast();
    const int left = all.field_violations_size() - cut.field_violations_size();
    auto* rest = cut.add_field_violations();
    rest->set_field("...");
    rest->set_description(absl::StrCat(left, " more violations; mend these first"));
    break;
  }
  return cut;
}

google::rpc::ErrorInfo InfoOf(const absl::Status& status) {
  google::rpc::ErrorInfo info;
  info.set_domain("blockswap");
  const std::string reason = ReasonOf(status);
  info.set_reason(reason.empty() ? DefaultReason(status.code()) : reason);
  for (const auto& [key, value] : MetadataOf(status)) {
    (*info.mutable_metadata())[key] = proto::Shorten(value, kMaxMetadataBytes);
  }
  const auto state = info.metadata().find("state");
  if (info.reason() == "INVALID_STATE" && state != info.metadata().end()) {
    const std::optional<JobState> known = ParseState(state->second);
    if (known.has_value()) {
      (*info.mutable_metadata())["allowed"] = std::string(AllowedVerbs(*known));
    }
  }
  return info;
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
  std::string message = proto::Shorten(proto::ToValidUtf8(status.message()), kMaxMessageBytes);
  google::rpc::Status details;
  details.set_code(static_cast<int>(code));
  details.set_message(message);
  const google::rpc::ErrorInfo info = InfoOf(status);
  details.add_details()->PackFrom(info);
  const auto bad_request = status.GetPayload(kBadRequestUrl);
  google::rpc::BadRequest violations;
  if (bad_request.has_value() && violations.ParseFromString(std::string(*bad_request))) {
    const size_t used = details.ByteSizeLong();
    details.add_details()->PackFrom(
        Cut(violations, used < kMaxDetailBytes ? kMaxDetailBytes - used : 0));
  }
  // With the values as they were cut.
  AddDetails(info, Metadata(info.metadata().begin(), info.metadata().end()), &details);
  if (code == grpc::StatusCode::INTERNAL || code == grpc::StatusCode::UNKNOWN) {
    google::rpc::RequestInfo request;
    request.set_request_id(RandomSuffix(kRequestIdLength));
    LogError("rpc {}: {}", request.request_id(), status.ToString());
    details.add_details()->PackFrom(request);
  }
  return grpc::Status(code, message, details.SerializeAsString());
}

}  // namespace blockswap::server
