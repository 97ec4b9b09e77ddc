// SPDX-License-Identifier: Apache-2.0
// Writes a Qwen-Image checkpoint of any depth and width without holding it in memory.
#ifndef BLOCKSWAP_TESTS_GPU_STACK_MODEL_H_
#define BLOCKSWAP_TESTS_GPU_STACK_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/family/qwen_image_config.h"

namespace blockswap::gpu {

struct StackModel {
  int64_t bytes = 0;
  bool random = false;  // false: the disk had no room, the file is sparse and every weight is zero
};

// A diffusers directory at `directory` (made here) with bf16 weights.
absl::StatusOr<StackModel> WriteStackModel(const worker::QwenImageConfig& config,
                                           const std::string& directory);

}  // namespace blockswap::gpu

#endif  // BLOCKSWAP_TESTS_GPU_STACK_MODEL_H_
