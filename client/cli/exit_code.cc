// SPDX-License-Identifier: Apache-2.0
#include "client/cli/exit_code.h"

#include "client/cpp/errors.h"

namespace blockswap::cli {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return kUnavailable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kDenied;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return kConflict;
    case absl::StatusCode::kFailedPrecondition:
      return client::DetailsOf(status).reason == "WILL_NOT_FIT" ? kWillNotFit : kConflict;
    case absl::StatusCode::kDeadlineExceeded:
      return kStillRunning;
    case absl::StatusCode::kCancelled:
      return kInterrupted;
    default:
      return kError;
  }
}

ExitCode ExitCodeOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return kOk;
    case v1::JOB_STATE_FAILED:
      return kJobFailed;
    case v1::JOB_STATE_CANCELLED:
      return kJobCancelled;
    default:
      return kStillRunning;
  }
}

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

}  // namespace blockswap::cli
