// SPDX-License-Identifier: Apache-2.0
#include "worker/model/double_block.h"

namespace blockswap::worker {
namespace {

AttentionProjections Project(const at::Tensor& x_BLD, const StreamWeights& weights) {
  return {ApplyLinear(x_BLD, weights.query), ApplyLinear(x_BLD, weights.key),
          ApplyLinear(x_BLD, weights.value), weights.query_norm, weights.key_norm};
}

// One stream after the other: layers are prefetched in this order (SetOrders in worker/family). The
// modulated inputs end here, where only adapters need them longer.
JointAttentionOutput Attend(const DoubleStreams& streams, const StreamWeights& image,
                            const StreamWeights& text, const Modulation& image_modulation,
                            const Modulation& text_modulation, const DoubleBlockSetting& setting) {
  const at::Tensor image_normed =
      ModulatedNorm(streams.image_BSD, image_modulation, kShift1, kScale1, setting.norm_eps);
  const at::Tensor text_normed =
      ModulatedNorm(streams.text_BTD, text_modulation, kShift1, kScale1, setting.norm_eps);
  const AttentionProjections text_projections = Project(text_normed, text);
  const AttentionProjections image_projections = Project(image_normed, image);
  return JointAttention(text_projections, image_projections, setting.attention);
}

// What follows attention in one stream: its output projection, then the MLP, each behind a gate.
at::Tensor Finish(const at::Tensor& x_BLD, const at::Tensor& attention_BLE,
                  const StreamWeights& weights, const Modulation& modulation, double eps) {
  const at::Tensor attended =
      GatedResidual(x_BLD, ApplyLinear(attention_BLE, weights.attention_out), modulation, kGate1);
  const at::Tensor hidden =
      ApplyLinear(ModulatedNorm(attended, modulation, kShift2, kScale2, eps), weights.mlp_in);
  return GatedResidual(attended, ApplyLinear(hidden, weights.mlp_out, InputActivation::kGeluTanh),
                       modulation, kGate2);
}

}  // namespace

DoubleStreams ForwardDoubleBlock(const DoubleStreams& streams, const StreamWeights& image,
                                 const StreamWeights& text, const Modulation& image_modulation,
                                 const Modulation& text_modulation,
                                 const DoubleBlockSetting& setting) {
  const JointAttentionOutput attention =
      Attend(streams, image, text, image_modulation, text_modulation, setting);
  DoubleStreams output;
  output.image_BSD =
      Finish(streams.image_BSD, attention.image_BSE, image, image_modulation, setting.norm_eps);
  output.text_BTD = setting.text_continues ? Finish(streams.text_BTD, attention.text_BTE, text,
                                                    text_modulation, setting.norm_eps)
                                           : streams.text_BTD;
  return output;
}

}  // namespace blockswap::worker
