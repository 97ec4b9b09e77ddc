// SPDX-License-Identifier: Apache-2.0
// Qwen-Image (facts/architectures.md 4): packed latents and text through double-stream blocks.
#ifndef BLOCKSWAP_WORKER_MODEL_QWEN_IMAGE_H_
#define BLOCKSWAP_WORKER_MODEL_QWEN_IMAGE_H_

#include <array>
#include <memory>
#include <vector>

#include "worker/model/attention.h"
#include "worker/model/host_modulation.h"
#include "worker/model/linear.h"
#include "worker/model/model.h"
#include "worker/model/modulation.h"

namespace blockswap::worker {

// Weights outside the blocks, in the order of ModelDescription::edge_tensors.
struct QwenImageEdge {
  at::Tensor image_in_weight, image_in_bias, text_in_weight, text_in_bias, text_norm_weight;
  at::Tensor time_1_weight, time_1_bias, time_2_weight, time_2_bias;
  at::Tensor norm_out_weight, norm_out_bias, out_weight, out_bias;

  std::array<at::Tensor*, 13> all() {
    return {&image_in_weight, &image_in_bias, &text_in_weight, &text_in_bias, &text_norm_weight,
            &time_1_weight,   &time_1_bias,   &time_2_weight,  &time_2_bias,  &norm_out_weight,
            &norm_out_bias,   &out_weight,    &out_bias};
  }
};

class QwenImageModel final : public Model {
 public:
  // `host_modulation`: null when the blocks bring their modulation weights.
  QwenImageModel(const QwenImageConfig& config, int num_blocks, QwenImageEdge edge,
                 std::unique_ptr<HostModulation> host_modulation = nullptr)
      : config_(config),
        num_blocks_(num_blocks),
        edge_(std::move(edge)),
        host_modulation_(std::move(host_modulation)) {}

  int num_blocks() const override { return num_blocks_; }
  std::unique_ptr<Conditioning> Condition(const ModelInputs& inputs) const override;
  Streams Embed(const ModelInputs& inputs) const override;
  Streams ForwardBlock(int index, const Streams& streams, const Conditioning& conditioning,
                       const BlockWeights& weights, const AdapterBlock& adapter) const override;
  at::Tensor Head(const Streams& streams, const Conditioning& conditioning) const override;
  HostWork host_work() const override;
  std::vector<at::Tensor> edge_tensors() const override;
  void TrainEdges(const std::vector<at::Tensor>& gradients) override;
  void BackwardEdges(const ModelInputs& inputs, const Conditioning& conditioning,
                     const Streams& grads) const override;

 private:
  const QwenImageConfig config_;
  const int num_blocks_;
  const QwenImageEdge edge_;
  const std::unique_ptr<HostModulation> host_modulation_;
  QwenImageEdge edge_gradients_;  // undefined while the edges are frozen
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_QWEN_IMAGE_H_
