// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/config/train_config.h"

namespace blockswap::worker {

absl::Status ViolationsToStatus(const std::vector<FieldViolation>& violations) {
  return absl::InvalidArgumentError(
      absl::StrJoin(violations, "\n", [](std::string* out, const FieldViolation& violation) {
        absl::StrAppend(out, violation.field, ": ", violation.description);
      }));
}

}  // namespace blockswap::worker
