// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint directory: which files belong to it, how long they are and what they
// hash to.
#ifndef BLOCKSWAP_WORKER_IO_CHECKPOINT_MANIFEST_H_
#define BLOCKSWAP_WORKER_IO_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/io/sha256.h"

namespace blockswap::worker {

inline constexpr char kManifestName[] = "manifest.json";

struct CheckpointManifest {
  int64_t step = 0;
  std::map<std::string, std::string> properties;
  std::map<std::string, FileDigest> files;  // by plain name
  std::string sha256;                       // of the manifest's own text, set by reading
};

std::string ManifestToJson(const CheckpointManifest& manifest);

// DataLoss, with a text that starts with what is wrong and not with the directory ("manifest is
// missing").
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& directory);

// The files of a directory as they are now. Internal when something in it is not a regular file.
absl::StatusOr<std::map<std::string, FileDigest>> DigestFiles(const std::string& directory);

enum class CheckDepth { kSizes, kHashes };
// DataLoss naming the first file that is missing, differs or does not belong.
absl::Status CheckFiles(const std::string& directory, const CheckpointManifest& manifest,
                        CheckDepth depth);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_CHECKPOINT_MANIFEST_H_
