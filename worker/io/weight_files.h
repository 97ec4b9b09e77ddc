// SPDX-License-Identifier: Apache-2.0
// Which files a weights path stands for: one file, the shards of an index, or what a diffusers
// directory holds.
#ifndef BLOCKSWAP_WORKER_IO_WEIGHT_FILES_H_
#define BLOCKSWAP_WORKER_IO_WEIGHT_FILES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace blockswap::worker {

struct WeightFiles {
  std::vector<std::string> paths;
  std::map<std::string, std::string> shard_of;  // tensor to plain file name; empty without an index
  std::string config_path;                      // empty: there is none beside them
};

// `weights` as in CheckpointSource::Open. A file that is named itself need not exist. NotFound
// names missing shards; InvalidArgument: no index that can be followed, or not one set of weights
// in a directory.
absl::StatusOr<WeightFiles> FindWeightFiles(const std::string& weights);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_WEIGHT_FILES_H_
