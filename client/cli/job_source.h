// SPDX-License-Identifier: Apache-2.0
// A job file with the overrides of the command line applied, as the spec that is sent.
#ifndef BLOCKSWAP_CLIENT_CLI_JOB_SOURCE_H_
#define BLOCKSWAP_CLIENT_CLI_JOB_SOURCE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "blockswap/v1/job.pb.h"
#include "client/cpp/errors.h"

namespace blockswap::cli {

struct JobSource {
  std::string file;                    // "-": standard input
  std::vector<std::string> overrides;  // "memory.ring_size=1", in order, the last wins
};

struct LoadedJob {
  v1::JobSpec spec;
  std::vector<client::FieldViolation> violations;  // what the file or an override says wrongly
};

// InvalidArgument when the file is no YAML; Unknown when it cannot be read.
absl::StatusOr<LoadedJob> LoadJob(const JobSource& source);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_JOB_SOURCE_H_
