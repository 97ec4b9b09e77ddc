// SPDX-License-Identifier: Apache-2.0
// What the server itself does with files of jobs: choose directories, hand checkpoints on, remove.
#ifndef BLOCKSWAP_SERVER_RPC_JOB_OUTPUTS_H_
#define BLOCKSWAP_SERVER_RPC_JOB_OUTPUTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/jobs/job.h"

namespace blockswap::server {

// `<root>/<id>`, or with a part of the uid behind it where an earlier job has left something there.
std::string NewOutputDirectory(const std::string& root, const JobRecord& job);

// Those that are still on disk: a worker removes old ones by itself.
std::vector<CheckpointRecord> OnDisk(std::vector<CheckpointRecord> checkpoints);

// Gives `to` a checkpoint of `from` so that its first attempt goes on there: hard links where the
// file system lets us, copies elsewhere. Nothing is left behind on failure.
absl::Status HandOnCheckpoint(const JobRecord& from, const CheckpointRecord& checkpoint,
                              const JobRecord& to);

// FailedPrecondition naming what could not be removed. Nothing outside the job's output directory
// is ever touched, links are not followed.
absl::Status RemoveCheckpoint(const JobRecord& job, const CheckpointRecord& checkpoint);
absl::Status RemoveLogs(const JobRecord& job);
absl::Status RemoveOutputs(const JobRecord& job);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_JOB_OUTPUTS_H_
