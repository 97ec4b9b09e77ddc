// SPDX-License-Identifier: Apache-2.0
#include "worker/config/shared_masters_key.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/io/sha256.h"

namespace blockswap::worker {
namespace {

void AppendTensor(const TensorSpec& tensor, std::string* text) {
  absl::StrAppend(text, "\n", tensor.name);
  if (tensor.on_host) absl::StrAppend(text, " on host");
  if (!tensor.fp8.has_value()) return;
  const Fp8Format& fp8 = *tensor.fp8;
  absl::StrAppend(text, " fp8 ", fp8.run, " ", fp8.num_scales, " ",
                  static_cast<int>(fp8.scale_type), fp8.stored ? " stored" : "",
                  fp8.plain ? " plain" : "");
}

}  // namespace

absl::StatusOr<std::string> SharedMastersKey(const TrainConfig& config,
                                             const CheckpointSource& weights,
                                             const ModelDescription& model) {
  if (config.network.trains_base || config.memory.mode == offload::TransferMode::kExchange) {
    return std::string();
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(std::string text, weights.Identity());
  absl::StrAppend(&text, "\ndtype ", static_cast<int>(model.dtype));
  for (const DescribedBlock& block : model.blocks) {
    absl::StrAppend(&text, "\nblock ", block.name);
    for (const TensorSpec& tensor : block.tensors) AppendTensor(tensor, &text);
  }
  return Sha256Hex(text);
}

absl::StatusOr<std::vector<std::string>> SharedMastersKeys(const TrainConfig& config,
                                                           const CheckpointSource& weights,
                                                           const ModelDescription& model) {
  std::vector<std::string> keys;
  BLOCKSWAP_ASSIGN_OR_RETURN(std::string key, SharedMastersKey(config, weights, model));
  if (key.empty()) return keys;
  keys.push_back(std::move(key));
  if (config.memory.host_modulation != offload::Toggle::kAuto) return keys;
  BLOCKSWAP_ASSIGN_OR_RETURN(const Family* const family, FindFamily(model.family));
  ModelDescription other = model;
  if (!family->SetHostModulation(!model.host_modulation, &other)) return keys;
  BLOCKSWAP_ASSIGN_OR_RETURN(key, SharedMastersKey(config, weights, other));
  keys.push_back(std::move(key));
  return keys;
}

}  // namespace blockswap::worker
