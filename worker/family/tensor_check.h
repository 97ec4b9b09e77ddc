// SPDX-License-Identifier: Apache-2.0
// Compares the tensors a family expects with those a checkpoint has, and says how they differ in
// three lines.
#ifndef BLOCKSWAP_WORKER_FAMILY_TENSOR_CHECK_H_
#define BLOCKSWAP_WORKER_FAMILY_TENSOR_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/family/family.h"

namespace blockswap::worker {

// Every tensor of `model` must be there in its shape and a type that can be read, E4M3 with its
// scales; nothing else may be, but `strays`. `what` opens the message ("qwen_image with 60 blocks
// of width 3072").
absl::Status CheckTensors(const CheckpointSource& source, const ModelDescription& model,
                          const std::vector<std::string>& strays, const std::string& what);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_FAMILY_TENSOR_CHECK_H_
