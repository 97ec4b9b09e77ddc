// SPDX-License-Identifier: Apache-2.0
// Finds a Qwen-Image transformer's hyper-parameters: from config.json over the class's defaults, or
// from tensor shapes.
#ifndef BLOCKSWAP_WORKER_FAMILY_QWEN_IMAGE_CONFIG_H_
#define BLOCKSWAP_WORKER_FAMILY_QWEN_IMAGE_CONFIG_H_

#include "absl/status/statusor.h"
#include "worker/family/family.h"
#include "worker/io/checkpoint_source.h"

namespace blockswap::worker {

// A marker without content that ComfyUI puts into files whose reference tokens are modulated with
// time 0.
inline constexpr char kZeroCondTimeMarker[] = "__index_timestep_zero__";

// InvalidArgument: a value out of range, an option that is not available, or shapes that do not
// tell enough.
absl::StatusOr<QwenImageConfig> ReadQwenImageConfig(const CheckpointSource& source);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_FAMILY_QWEN_IMAGE_CONFIG_H_
