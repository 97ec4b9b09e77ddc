// SPDX-License-Identifier: Apache-2.0
// The Qwen-Image descriptor: 60 double-stream blocks, one naming scheme (facts of the class
// QwenImageTransformer2DModel).
#ifndef BLOCKSWAP_WORKER_FAMILY_QWEN_IMAGE_FAMILY_H_
#define BLOCKSWAP_WORKER_FAMILY_QWEN_IMAGE_FAMILY_H_

#include <string>
#include <vector>

#include "worker/family/family.h"

namespace blockswap::worker {

class QwenImageFamily final : public Family {
 public:
  absl::string_view name() const override { return "qwen_image"; }
  absl::string_view musubi_short_name() const override { return "qi"; }
  bool Recognises(const CheckpointSource& source) const override;
  absl::StatusOr<ModelDescription> Describe(const CheckpointSource& source,
                                            Dtype dtype) const override;
  std::vector<std::string> DefaultExcludePatterns() const override;
  bool SetHostModulation(bool on, ModelDescription* model) const override;
  Fp8Layers fp8_layers() const override;
  offload::ModelProfile Profile(const ModelDescription& model, const AdapterLayout& adapter,
                                absl::Span<const TokenCounts> buckets) const override;
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_FAMILY_QWEN_IMAGE_FAMILY_H_
