// SPDX-License-Identifier: Apache-2.0
// Names what a job's streamed blocks hold, so that jobs with the same answer can share them.
#ifndef BLOCKSWAP_WORKER_CONFIG_SHARED_MASTERS_KEY_H_
#define BLOCKSWAP_WORKER_CONFIG_SHARED_MASTERS_KEY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/config/train_config.h"
#include "worker/family/family.h"
#include "worker/io/checkpoint_source.h"

namespace blockswap::worker {

// 64 hex digits of the weight files' identity and of what the packed blocks of `model` hold: which
// tensors, in which types. So settings count as they were settled, not as they were written. Empty
// for a job whose masters are its own: exchange mode and a base that trains write to them.
absl::StatusOr<std::string> SharedMastersKey(const TrainConfig& config,
                                             const CheckpointSource& weights,
                                             const ModelDescription& model);

// One key for each way in which the job may still settle what it leaves open (host_modulation:
// auto), that of `model` first; empty where SharedMastersKey is.
absl::StatusOr<std::vector<std::string>> SharedMastersKeys(const TrainConfig& config,
                                                           const CheckpointSource& weights,
                                                           const ModelDescription& model);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CONFIG_SHARED_MASTERS_KEY_H_
