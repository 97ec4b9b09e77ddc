// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/errors.h"

#include <optional>

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace blockswap::client {
namespace {

constexpr char kPayload[] = "type.googleapis.com/google.rpc.Status";

}  // namespace

absl::Status ToAbslStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // The code numbers of the two are the same by design.
  absl::Status converted(static_cast<absl::StatusCode>(status.error_code()),
                         status.error_message());
  if (!status.error_details().empty())
    converted.SetPayload(kPayload, absl::Cord(status.error_details()));
  return converted;
}

ErrorDetails DetailsOf(const absl::Status& status) {
  ErrorDetails details;
  const auto payload = status.GetPayload(kPayload);
  google::rpc::Status rpc;
  if (!payload.has_value() || !rpc.ParseFromString(std::string(*payload))) return details;
  for (const google::protobuf::Any& any : rpc.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    google::rpc::PreconditionFailure precondition;
    if (any.Is<google::rpc::ErrorInfo>() && any.UnpackTo(&info)) {
      details.reason = info.reason();
      details.metadata.insert(info.metadata().begin(), info.metadata().end());
    } else if (any.Is<google::rpc::BadRequest>() && any.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        details.violations.push_back({violation.field(), violation.description()});
      }
    } else if (any.Is<google::rpc::PreconditionFailure>() && any.UnpackTo(&precondition)) {
      for (const auto& violation : precondition.violations()) {
        details.violations.push_back({violation.subject(), violation.description()});
      }
    }
  }
  return details;
}

}  // namespace blockswap::client
