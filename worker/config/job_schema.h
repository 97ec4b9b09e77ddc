// SPDX-License-Identifier: Apache-2.0
// The job file as a JSON Schema, so that editors complete and check it.
#ifndef BLOCKSWAP_WORKER_CONFIG_JOB_SCHEMA_H_
#define BLOCKSWAP_WORKER_CONFIG_JOB_SCHEMA_H_

#include <string>

#include "absl/status/statusor.h"

namespace blockswap::worker {

// Names and types are those of the message, words and limits those that ValidateSpec checks,
// descriptions the comments of the proto. It refuses nothing that the server takes, but not all
// that the server refuses. `descriptor_set` is a serialised FileDescriptorSet of job.proto with
// source info. InvalidArgument: it is none.
absl::StatusOr<std::string> JobSchema(const std::string& descriptor_set);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CONFIG_JOB_SCHEMA_H_
