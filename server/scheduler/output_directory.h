// SPDX-License-Identifier: Apache-2.0
// The directory that an attempt writes to, as it is just before the attempt begins.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_OUTPUT_DIRECTORY_H_
#define BLOCKSWAP_SERVER_SCHEDULER_OUTPUT_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"

namespace blockswap::server {

inline constexpr char kOutputUnavailable[] = "OUTPUT_UNAVAILABLE";

// Makes it where it is missing and sees whether it can be written. `has_checkpoints`: the job's are
// in there, so one that is gone is not made anew, which would begin the job from nothing. Errors
// have the reason OUTPUT_UNAVAILABLE and the path. Unavailable: deleted, unmounted, read-only,
// stale, which may pass. FailedPrecondition: something else is in its place.
absl::Status PrepareOutputDirectory(const std::string& path, bool has_checkpoints);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_OUTPUT_DIRECTORY_H_
