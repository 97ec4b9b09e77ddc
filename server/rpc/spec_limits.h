// SPDX-License-Identifier: Apache-2.0
// Limits of requests and the server's own part of a job spec: what concerns the queue and not the
// training.
#ifndef BLOCKSWAP_SERVER_RPC_SPEC_LIMITS_H_
#define BLOCKSWAP_SERVER_RPC_SPEC_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "blockswap/v1/job.pb.h"
#include "server/jobs/job.h"
#include "server/rpc/status_conversion.h"

namespace blockswap::server {

inline constexpr int kMaxLabels = 32;
inline constexpr int64_t kMaxStringBytes = 4096;
inline constexpr size_t kMaxRequestId = 64;

// Size, length of every text (with its path), number of labels, deadline.
std::vector<Violation> CheckSpecLimits(const v1::JobSpec& spec, int64_t max_spec_bytes,
                                       int64_t create_micros);

// The texts, with their paths, that hold what looks like a token or a password: a spec is kept, and
// shown to all who may read the job. No violation repeats one.
std::vector<Violation> CheckSpecSecrets(const v1::JobSpec& spec);

// When a spec's deadline is, 0 for none: a time, or a span from the job's creation on.
// InvalidArgument: neither, or not within ten years.
absl::StatusOr<int64_t> DeadlineMicros(const std::string& deadline, int64_t create_micros);

// Copies what the store and the scheduler know of a spec into their own fields.
// REQUIRES: the spec's deadline is valid.
void TakeQueueSettings(const v1::JobSpec& spec, JobRecord& job);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_SPEC_LIMITS_H_
