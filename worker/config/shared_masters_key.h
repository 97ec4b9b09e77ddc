// SPDX-License-Identifier: Apache-2.0
// Names what a job's streamed blocks hold, so that jobs with the same answer can share them.
#ifndef BLOCKSWAP_WORKER_CONFIG_SHARED_MASTERS_KEY_H_
#define BLOCKSWAP_WORKER_CONFIG_SHARED_MASTERS_KEY_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/config/train_config.h"
#include "worker/io/checkpoint_source.h"

namespace blockswap::worker {

// 64 hex digits of the weight files' identity and of every setting that changes what a packed block
// holds; the layout itself is compared where the memory is opened. Empty for a job whose masters
// are its own: exchange mode and a base that trains write to them.
absl::StatusOr<std::string> SharedMastersKey(const TrainConfig& config,
                                             const CheckpointSource& weights);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CONFIG_SHARED_MASTERS_KEY_H_
