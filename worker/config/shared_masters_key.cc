// SPDX-License-Identifier: Apache-2.0
#include "worker/config/shared_masters_key.h"

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/io/sha256.h"

namespace blockswap::worker {

absl::StatusOr<std::string> SharedMastersKey(const TrainConfig& config,
                                             const CheckpointSource& weights) {
  if (config.network.trains_base || config.memory.mode == offload::TransferMode::kExchange) {
    return std::string();
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string files, weights.Identity());
  return Sha256Hex(absl::StrCat(
      files, "\ndtype ", static_cast<int>(config.model.dtype), "\nquantization ",
      static_cast<int>(config.model.quantization), "\nhost modulation ",
      static_cast<int>(config.memory.host_modulation), "\nconfig ", weights.config_json()));
}

}  // namespace blockswap::worker
