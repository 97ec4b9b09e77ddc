// SPDX-License-Identifier: Apache-2.0
// Checkpoint directories that are complete or absent: written under a temporary name, manifest
// last, fsynced, renamed.
#ifndef BLOCKSWAP_WORKER_IO_CHECKPOINT_DIRECTORY_H_
#define BLOCKSWAP_WORKER_IO_CHECKPOINT_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace blockswap::worker {

struct CommittedCheckpoint {
  int64_t step = 0;
  std::string directory;  // .../checkpoints/step-00000100
  std::string manifest_sha256;
  int64_t bytes = 0;
  std::map<std::string, std::string> properties;  // the writer's own, from the manifest
};

// Checks free space (`expected_bytes` * 1.2), makes `parent`/.step-NNNNNNNN.tmp-<random>, lets
// `write` fill it, writes manifest.json (sizes, SHA-256, properties) last, fsyncs files and
// directories, renames to step-NNNNNNNN. On any failure the temporary is removed and every older
// checkpoint is untouched. ResourceExhausted: bytes needed and free. An existing directory of the
// same step is replaced only by rename-aside and never lost.
absl::StatusOr<CommittedCheckpoint> CommitCheckpoint(
    const std::string& parent, int64_t step, int64_t expected_bytes,
    const std::map<std::string, std::string>& properties,
    const std::function<absl::Status(const std::string& directory)>& write);

// Verifies sizes and hashes. DataLoss naming the first file that is wrong and how.
absl::StatusOr<CommittedCheckpoint> VerifyCheckpoint(const std::string& directory);

// The newest complete checkpoint below `parent`; what was skipped, and why, goes to `skipped`
// ("step-00000015: manifest is missing"). NotFound when there is none. Removes left-over
// temporaries.
absl::StatusOr<CommittedCheckpoint> FindNewestCheckpoint(const std::string& parent,
                                                         std::vector<std::string>* skipped);

// Deletes the oldest complete checkpoints until `keep` are left; never the newest complete one.
absl::Status PruneCheckpoints(const std::string& parent, int keep);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_CHECKPOINT_DIRECTORY_H_
