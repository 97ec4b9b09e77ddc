// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/command_exit.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/channel/reporter.h"

namespace blockswap::worker {
namespace {

ExitCode CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
      return ExitCode::kInvalidInput;
    default:
      return ExitCode::kInternal;
  }
}

}  // namespace

int FinishCommand(absl::string_view command, const absl::Status& status) {
  if (!status.ok()) {
    const std::string line = absl::StrCat(command, ": ", status.message(), "\n");
    std::fputs(line.c_str(), stderr);
  }
  return static_cast<int>(CodeOf(status));
}

}  // namespace blockswap::worker
