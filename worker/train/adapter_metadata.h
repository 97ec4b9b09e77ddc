// SPDX-License-Identifier: Apache-2.0
// What a saved adapter says of its making: musubi's ss_* fields, the model spec and the content
// hashes (facts/musubi.md 4.7).
#ifndef BLOCKSWAP_WORKER_TRAIN_ADAPTER_METADATA_H_
#define BLOCKSWAP_WORKER_TRAIN_ADAPTER_METADATA_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "worker/adapter/adapter.h"
#include "worker/config/job_inspection.h"
#include "worker/train/trainable.h"

namespace blockswap::worker {

std::map<std::string, std::string> AdapterMetadata(const JobInspection& job,
                                                   const TrainingMoment& moment);

// Saves with the metadata and the two hashes that musubi adds: SHA-256 of the tensor data, and the
// legacy one.
absl::Status SaveAdapter(const Adapter& adapter, const JobInspection& job,
                         const TrainingMoment& moment, const std::string& path);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_ADAPTER_METADATA_H_
