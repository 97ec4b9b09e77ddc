// SPDX-License-Identifier: Apache-2.0
#include "worker/model/double_block.h"

namespace blockswap::worker {
namespace {

AttentionProjections Project(const at::Tensor& x_BLD, const StreamWeights& weights) {
  return {ApplyLinear(x_BLD, weights.query), ApplyLinear(x_BLD, weights.key),
          ApplyLinear(x_BLD, weights.value), weights.query_norm, weights.key_norm};
}

// One stream after the other: layers are prefetched in this order (SetOrders in worker/family).
JointAttentionOutput Attend(const at::Tensor& text_BTD, const StreamWeights& text,
                            const at::Tensor& image_BSD, const StreamWeights& image,
                            const JointAttentionSetting& setting) {
  const AttentionProjections text_projections = Project(text_BTD, text);
  const AttentionProjections image_projections = Project(image_BSD, image);
  return JointAttention(text_projections, image_projections, setting);
}

// What follows attention in one stream: its output projection, then the MLP, each behind a gate.
at::Tensor Finish(const at::Tensor& x_BLD, const at::Tensor& attention_BLE,
                  const StreamWeights& weights, const Modulation& modulation, double eps) {
  const at::Tensor attended =
      GatedResidual(x_BLD, ApplyLinear(attention_BLE, weights.attention_out), modulation, kGate1);
  const at::Tensor normed = ModulatedNorm(attended, modulation, kShift2, kScale2, eps);
  const at::Tensor hidden = ApplyLinear(normed, weights.mlp_in);
  return GatedResidual(attended, ApplyLinear(hidden, weights.mlp_out, InputActivation::kGeluTanh),
                       modulation, kGate2);
}

}  // namespace

DoubleStreams ForwardDoubleBlock(const DoubleStreams& streams, const StreamWeights& image,
                                 const StreamWeights& text, const Modulation& image_modulation,
                                 const Modulation& text_modulation,
                                 const DoubleBlockSetting& setting) {
  const at::Tensor image_normed =
      ModulatedNorm(streams.image_BSD, image_modulation, kShift1, kScale1, setting.norm_eps);
  const at::Tensor text_normed =
      ModulatedNorm(streams.text_BTD, text_modulation, kShift1, kScale1, setting.norm_eps);
  const JointAttentionOutput attention =
      Attend(text_normed, text, image_normed, image, setting.attention);
  DoubleStreams output;
  output.image_BSD =
      Finish(streams.image_BSD, attention.image_BSE, image, image_modulation, setting.norm_eps);
  output.text_BTD = setting.text_continues ? Finish(streams.text_BTD, attention.text_BTE, text,
                                                    text_modulation, setting.norm_eps)
                                           : streams.text_BTD;
  return output;
}

}  // namespace blockswap::worker
