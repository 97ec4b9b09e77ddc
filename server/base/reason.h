// SPDX-License-Identifier: Apache-2.0
// Attaches the machine-readable reason and values of an API error to an absl::Status.
#ifndef BLOCKSWAP_SERVER_BASE_REASON_H_
#define BLOCKSWAP_SERVER_BASE_REASON_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace blockswap::server {

// `reason` is UPPER_SNAKE from the closed list in training.proto; anything variable in the message
// is also in `metadata`.
absl::Status WithReason(absl::Status status, absl::string_view reason,
                        const std::map<std::string, std::string>& metadata = {});

// Empty when none was attached.
std::string ReasonOf(const absl::Status& status);
std::map<std::string, std::string> MetadataOf(const absl::Status& status);

absl::Status JobNotFound(absl::string_view job_id);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_BASE_REASON_H_
