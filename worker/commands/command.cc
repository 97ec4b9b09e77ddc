// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/command.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "offload/base/status_macros.h"
#include "worker/train/failure.h"

namespace blockswap::worker {

absl::StatusOr<JobInspection> OpenJob(absl::StatusOr<SpecResult> spec) {
  BLOCKSWAP_RETURN_IF_ERROR(spec.status());
  std::vector<FieldViolation> violations = spec->violations;
  violations.insert(violations.end(), spec->outside_roots.begin(), spec->outside_roots.end());
  if (!violations.empty() || !spec->config.has_value()) {
    return WithFailure(ViolationsToStatus(violations), ExitCode::kInvalidInput, "INVALID_SPEC");
  }
  absl::StatusOr<JobInspection> job = InspectJob(*spec->config, &violations);
  if (!violations.empty()) {
    return WithFailure(ViolationsToStatus(violations), ExitCode::kInvalidInput, "INVALID_SPEC");
  }
  return job;
}

void PrintFailure(const std::string& message) {
  const std::vector<std::string> lines = absl::StrSplit(message, '\n');
  std::fprintf(stderr, "blockswap-worker: %s\n", lines.front().c_str());
  for (size_t i = 1; i < lines.size(); ++i) std::fprintf(stderr, "  %s\n", lines[i].c_str());
}

}  // namespace blockswap::worker
