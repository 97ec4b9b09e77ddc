// SPDX-License-Identifier: Apache-2.0
#include "worker/train/failure.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace blockswap::worker {
namespace {

constexpr absl::string_view kFailureUrl = "blockswap.worker/failure";

struct WayOut {
  ExitCode code;
  const char* reason;
};

WayOut DefaultWayOut(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return {ExitCode::kOk, ""};
    case absl::StatusCode::kCancelled:
      return {ExitCode::kCancelled, "CANCELLED"};
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return {ExitCode::kInvalidInput, "INVALID_SPEC"};
    case absl::StatusCode::kNotFound:
      return {ExitCode::kInvalidInput, "FILE_NOT_FOUND"};
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return {ExitCode::kInvalidInput, "PERMISSION_DENIED"};
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return {ExitCode::kInvalidInput, "PRECONDITION_FAILED"};
    case absl::StatusCode::kUnimplemented:
      return {ExitCode::kInvalidInput, "NOT_AVAILABLE"};
    case absl::StatusCode::kDataLoss:
      return {ExitCode::kInvalidInput, "FILE_CORRUPT"};
    case absl::StatusCode::kResourceExhausted:
      return {ExitCode::kHostOutOfMemory, "RESOURCE_EXHAUSTED"};
    case absl::StatusCode::kUnavailable:
      return {ExitCode::kDeviceFault, "DEVICE_UNAVAILABLE"};
    default:
      return {ExitCode::kInternal, "INTERNAL"};
  }
}

}  // namespace

absl::Status WithFailure(absl::Status status, ExitCode code, absl::string_view reason) {
  if (!status.ok() && !status.GetPayload(kFailureUrl).has_value()) {
    status.SetPayload(kFailureUrl, absl::Cord(absl::StrCat(static_cast<int>(code), " ", reason)));
  }
  return status;
}

ExitReport ToExitReport(const absl::Status& status) {
  const WayOut way_out = DefaultWayOut(status.code());
  ExitReport report;
  report.code = way_out.code;
  report.reason = way_out.reason;
  report.message = std::string(status.message());
  if (const auto payload = status.GetPayload(kFailureUrl); payload.has_value()) {
    const std::vector<std::string> parts =
        absl::StrSplit(std::string(*payload), absl::MaxSplits(' ', 1));
    int code = 0;
    if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &code)) {
      report.code = static_cast<ExitCode>(code);
      report.reason = parts[1];
    }
  }
  report.category = std::string(FailureCategoryName(report.code));
  return report;
}

absl::string_view FailureCategoryName(ExitCode code) {
  switch (code) {
    case ExitCode::kOk:
    case ExitCode::kCancelled:
    case ExitCode::kSuspended:
      return "";
    case ExitCode::kInvalidInput:
      return "INVALID_INPUT";
    case ExitCode::kDeviceOutOfMemory:
      return "OUT_OF_MEMORY_DEVICE";
    case ExitCode::kDeviceFault:
      return "DEVICE_FAULT";
    case ExitCode::kStorage:
      return "STORAGE";
    case ExitCode::kNumerics:
      return "NUMERICS";
    case ExitCode::kHostOutOfMemory:
      return "OUT_OF_MEMORY_HOST";
    case ExitCode::kInternal:
      return "SERVER_INTERNAL";
  }
  return "SERVER_INTERNAL";
}

}  // namespace blockswap::worker
