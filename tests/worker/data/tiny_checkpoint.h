// SPDX-License-Identifier: Apache-2.0
// Writes a Qwen-Image transformer of a few hundred kilobytes with random weights.
#ifndef BLOCKSWAP_TESTS_WORKER_DATA_TINY_CHECKPOINT_H_
#define BLOCKSWAP_TESTS_WORKER_DATA_TINY_CHECKPOINT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/family/family.h"

namespace blockswap::worker {

// 2 latent channels of 2x2 patches, width 32 (2 heads of 16), text of 24.
QwenImageConfig TinyQwenImageConfig(int64_t num_layers = 6);
std::string ConfigJson(const QwenImageConfig& config);

// A tensor of a checkpoint to be written; values are filled in from its name.
struct TinyTensor {
  std::string name;
  std::vector<int64_t> shape;
  StoredType type = StoredType::kBF16;
};
std::vector<TinyTensor> TinyQwenImageTensors(const QwenImageConfig& config);
absl::Status WriteTinyTensors(const std::string& path, const std::vector<TinyTensor>& tensors);

// directory/config.json and directory/model.safetensors.
absl::Status WriteTinyCheckpoint(const std::string& directory, const QwenImageConfig& config);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_TESTS_WORKER_DATA_TINY_CHECKPOINT_H_
