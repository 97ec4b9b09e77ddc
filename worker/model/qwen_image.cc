// SPDX-License-Identifier: Apache-2.0
#include "worker/model/qwen_image.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "worker/model/double_block.h"
#include "worker/model/norms.h"
#include "worker/model/time_embedding.h"

namespace blockswap::worker {
namespace {

constexpr double kEps = 1e-6;
constexpr double kRopeTheta = 10000;
constexpr double kTimeMultiplier = 1000;  // the caller's time is in [0, 1]
constexpr int64_t kSinusoidWidth = 256;

// Linears of a block by their slot in the family's order; weight is tensor 2 * slot, bias 2 * slot
// + 1. The norms follow.
enum Slot : int {
  kToQuery,
  kToKey,
  kToValue,
  kToOut,
  kTextQuery,
  kTextKey,
  kTextValue,
  kTextOut,
  kImageMlpIn,
  kImageMlpOut,
  kTextMlpIn,
  kTextMlpOut,
  kImageModulation,
  kTextModulation,
  kNumSlots
};
enum NormTensor : int { kQueryNorm = 2 * kNumSlots, kKeyNorm, kTextQueryNorm, kTextKeyNorm };

struct QwenConditioning final : Conditioning {
  at::Tensor
      activated_time_BGD;  // silu of the time embedding; group 1: time 0, of reference images
  at::Tensor text_time_B1D;
  // Gradients of the two above, summed over blocks and head (fp32); undefined while edges are
  // frozen. The text's is a view of the first.
  at::Tensor time_grad_BGD, text_time_grad_B1D;
  JointAttentionSetting attention;
  TimeGroups image_groups, text_groups;
  // Modulation rows of each block, filled by the first pass over it, used again by the recompute.
  mutable std::vector<at::Tensor> image_rows, text_rows;
  // Evaluates them ahead of the blocks; null without host modulation.
  std::unique_ptr<HostModulation::Pass> host_rows;
};

int64_t TokensOf(const std::array<int64_t, 3>& shape) { return shape[0] * shape[1] * shape[2]; }

int64_t ImageTokens(const ModelInputs& inputs) {
  int64_t tokens = 0;
  for (const auto& shape : inputs.img_shapes) tokens += TokensOf(shape);
  return tokens;
}

// Positions on the (frame, row, column) axes: text after the largest half side on all three, images
// on centred grids, one frame index after the other.
std::vector<std::vector<int64_t>> JointPositions(const ModelInputs& inputs, int64_t text_tokens) {
  std::vector<std::vector<int64_t>> positions(3);
  int64_t text_start = 0;
  for (const auto& [frames, height, width] : inputs.img_shapes) {
    text_start = std::max({text_start, height / 2, width / 2});
  }
  for (int64_t j = 0; j < text_tokens; ++j) {
    for (auto& axis : positions) axis.push_back(text_start + j);
  }
  for (size_t image = 0; image < inputs.img_shapes.size(); ++image) {
    const auto [frames, height, width] = inputs.img_shapes[image];
    for (int64_t f = 0; f < frames; ++f) {
      for (int64_t y = 0; y < height; ++y) {
        for (int64_t x = 0; x < width; ++x) {
          positions[0].push_back(static_cast<int64_t>(image) + f);
          positions[1].push_back(y - (height - height / 2));
          positions[2].push_back(x - (width - width / 2));
        }
      }
    }
  }
  return positions;
}

// Undefined when every text token is real.
at::Tensor KeyBias(const at::Tensor& mask_BT, int64_t image_tokens, at::ScalarType type) {
  if (!mask_BT.defined()) return {};
  const at::Tensor padding = mask_BT.eq(0);
  if (!padding.any().item<bool>()) return {};
  const at::Tensor all =
      at::cat({padding, at::zeros({padding.size(0), image_tokens}, padding.options())}, 1);
  const at::Tensor bias = at::zeros(all.sizes(), all.options().dtype(type));
  return bias.masked_fill_(all, -std::numeric_limits<double>::infinity()).unsqueeze(1).unsqueeze(1);
}

at::Tensor Rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

LinearRef Linear(Slot slot, const BlockWeights& weights, const AdapterBlock& adapter) {
  const auto index = static_cast<size_t>(slot);
  return {weights.tensors[2 * index], weights.tensors[2 * index + 1],
          index < adapter.linears.size() ? &adapter.linears[index] : nullptr};
}

StreamWeights ImageStream(const BlockWeights& w, const AdapterBlock& a) {
  return {Linear(kToQuery, w, a),         Linear(kToKey, w, a),      Linear(kToValue, w, a),
          Linear(kToOut, w, a),           Linear(kImageMlpIn, w, a), Linear(kImageMlpOut, w, a),
          Linear(kImageModulation, w, a), w.tensors[kQueryNorm],     w.tensors[kKeyNorm]};
}

StreamWeights TextStream(const BlockWeights& w, const AdapterBlock& a) {
  return {Linear(kTextQuery, w, a),      Linear(kTextKey, w, a),    Linear(kTextValue, w, a),
          Linear(kTextOut, w, a),        Linear(kTextMlpIn, w, a),  Linear(kTextMlpOut, w, a),
          Linear(kTextModulation, w, a), w.tensors[kTextQueryNorm], w.tensors[kTextKeyNorm]};
}

using EdgeTensor = at::Tensor QwenImageEdge::*;

LinearRef EdgeLinear(EdgeTensor weight, EdgeTensor bias, const QwenImageEdge& edge,
                     const QwenImageEdge& gradients) {
  LinearRef linear{WeightRef(&(edge.*weight)), WeightRef(&(edge.*bias)), nullptr};
  linear.weight.set_gradient(gradients.*weight);
  linear.bias.set_gradient(gradients.*bias);
  return linear;
}

// [B, groups] in fp32: a sample's time, and time 0 where there are reference images.
at::Tensor TimesOfGroups(const ModelInputs& inputs, const QwenImageConfig& config) {
  const at::Tensor times = inputs.timestep_B.to(at::kFloat).unsqueeze(1);
  const bool has_references =
      config.zero_cond_t && TokensOf(inputs.img_shapes.front()) < ImageTokens(inputs);
  return has_references ? at::cat({times, at::zeros_like(times)}, 1) : times;
}

// The layers of the time embedding, each before its activation; [B * groups, width].
struct TimeLayers {
  at::Tensor sinusoid, hidden, embedding;
};
TimeLayers EmbedTime(const at::Tensor& times, const QwenImageEdge& edge) {
  TimeLayers layers;
  layers.sinusoid = Sinusoid(times.reshape({-1}), kSinusoidWidth, kTimeMultiplier)
                        .to(edge.time_1_weight.scalar_type());
  layers.hidden = at::linear(layers.sinusoid, edge.time_1_weight, edge.time_1_bias);
  layers.embedding = at::linear(at::silu(layers.hidden), edge.time_2_weight, edge.time_2_bias);
  return layers;
}

}  // namespace

std::unique_ptr<Conditioning> QwenImageModel::Condition(const ModelInputs& inputs) const {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = edge_.image_in_weight.scalar_type();
  const int64_t batch = inputs.timestep_B.size(0);
  const int64_t image_tokens = ImageTokens(inputs),
                text_tokens = inputs.encoder_hidden_states_BTJ.size(1);
  auto conditioning = std::make_unique<QwenConditioning>();

  const int64_t target_tokens = TokensOf(inputs.img_shapes.front());
  const at::Tensor times = TimesOfGroups(inputs, config_);
  const at::Tensor embedding = EmbedTime(times, edge_).embedding;
  conditioning->activated_time_BGD = at::silu(embedding).view({batch, times.size(1), -1});
  conditioning->text_time_B1D = conditioning->activated_time_BGD.narrow(1, 0, 1).contiguous();
  if (edge_gradients_.time_1_weight.defined()) {
    conditioning->time_grad_BGD =
        at::zeros(conditioning->activated_time_BGD.sizes(), times.options());
    conditioning->text_time_grad_B1D = conditioning->time_grad_BGD.narrow(1, 0, 1);
  }
  conditioning->image_groups = {image_tokens};
  if (times.size(1) > 1) {
    conditioning->image_groups = {target_tokens, image_tokens - target_tokens};
  }
  conditioning->text_groups = {text_tokens};

  conditioning->attention.num_heads = config_.num_attention_heads;
  conditioning->attention.norm_eps = kEps;
  conditioning->attention.table =
      MakeRotaryTable(JointPositions(inputs, text_tokens), config_.axes_dims_rope, kRopeTheta,
                      edge_.image_in_weight.device());
  conditioning->attention.key_bias_B11L = KeyBias(inputs.encoder_mask_BT, image_tokens, type);
  conditioning->image_rows.resize(static_cast<size_t>(num_blocks_));
  conditioning->text_rows.resize(static_cast<size_t>(num_blocks_));
  if (host_modulation_ != nullptr) {
    conditioning->host_rows =
        host_modulation_->Start({{kImageModulation, Rows(conditioning->activated_time_BGD)},
                                 {kTextModulation, Rows(conditioning->text_time_B1D)}});
  }
  return conditioning;
}

Streams QwenImageModel::Embed(const ModelInputs& inputs) const {
  const at::ScalarType type = edge_.image_in_weight.scalar_type();
  const LinearRef image_in = EdgeLinear(&QwenImageEdge::image_in_weight,
                                        &QwenImageEdge::image_in_bias, edge_, /*gradients=*/{});
  const at::Tensor image = ApplyLinear(inputs.hidden_states_BSC.to(type), image_in);
  const at::NoGradGuard no_grad;
  const at::Tensor text_in = inputs.encoder_hidden_states_BTJ.to(type);
  const at::Tensor normed = RmsNorm(text_in, edge_.text_norm_weight, kEps);
  return {image, at::linear(normed, edge_.text_in_weight, edge_.text_in_bias)};
}

Streams QwenImageModel::ForwardBlock(int index, const Streams& streams,
                                     const Conditioning& conditioning, const BlockWeights& weights,
                                     const AdapterBlock& adapter) const {
  const auto& shared = static_cast<const QwenConditioning&>(conditioning);
  const StreamWeights image = ImageStream(weights, adapter), text = TextStream(weights, adapter);
  at::Tensor& image_rows = shared.image_rows[static_cast<size_t>(index)];
  at::Tensor& text_rows = shared.text_rows[static_cast<size_t>(index)];
  const auto frozen = [&](const at::Tensor& rows, Slot slot) {
    const bool from_host = shared.host_rows != nullptr && !rows.defined();
    return from_host ? shared.host_rows->Take(index, slot) : at::Tensor();
  };
  const Modulation image_modulation = MakeModulation(
      shared.activated_time_BGD, image.modulation, kNumModulationRows, shared.image_groups,
      &image_rows, shared.time_grad_BGD, frozen(image_rows, kImageModulation));
  const Modulation text_modulation =
      MakeModulation(shared.text_time_B1D, text.modulation, kNumModulationRows, shared.text_groups,
                     &text_rows, shared.text_time_grad_B1D, frozen(text_rows, kTextModulation));
  const DoubleBlockSetting setting{shared.attention, kEps,
                                   /*text_continues=*/index + 1 < num_blocks_};
  DoubleStreams next = ForwardDoubleBlock({streams[0], streams[1]}, image, text, image_modulation,
                                          text_modulation, setting);
  if (next.image_BSD.scalar_type() == at::kHalf) {
    // fp16 overflows here otherwise (facts/architectures.md 4.2).
    next = {at::clamp(next.image_BSD, -65504, 65504), at::clamp(next.text_BTD, -65504, 65504)};
  }
  return {next.image_BSD, next.text_BTD};
}

at::Tensor QwenImageModel::Head(const Streams& streams, const Conditioning& conditioning) const {
  const auto& shared = static_cast<const QwenConditioning&>(conditioning);
  enum OutRow : int64_t { kScale, kShift, kNumRows };
  const LinearRef norm_out = EdgeLinear(&QwenImageEdge::norm_out_weight,
                                        &QwenImageEdge::norm_out_bias, edge_, edge_gradients_);
  const LinearRef out =
      EdgeLinear(&QwenImageEdge::out_weight, &QwenImageEdge::out_bias, edge_, edge_gradients_);
  const Modulation modulation =
      MakeModulation(shared.text_time_B1D, norm_out, kNumRows, {streams[0].size(1)},
                     /*cached=*/nullptr, shared.text_time_grad_B1D);
  return ApplyLinear(ModulatedNorm(streams[0], modulation, kShift, kScale, kEps), out);
}

HostWork QwenImageModel::host_work() const {
  if (host_modulation_ == nullptr) return {};
  const HostLinearStats stats = host_modulation_->stats();
  return {host_modulation_->weight_bytes(), host_modulation_->copied_bytes(), stats.passes,
          stats.busy, stats.waited};
}

std::vector<at::Tensor> QwenImageModel::edge_tensors() const {
  QwenImageEdge edge = edge_;
  std::vector<at::Tensor> tensors;
  for (const at::Tensor* tensor : edge.all()) tensors.push_back(*tensor);
  return tensors;
}

void QwenImageModel::TrainEdges(const std::vector<at::Tensor>& gradients) {
  edge_gradients_ = QwenImageEdge();
  const auto all = edge_gradients_.all();
  TORCH_CHECK(gradients.empty() || gradients.size() == all.size(), "qwen_image has ", all.size(),
              " edge tensors, given are ", gradients.size(), " gradients");
  for (size_t i = 0; i < gradients.size(); ++i) *all[i] = gradients[i];
}

void QwenImageModel::BackwardEdges(const ModelInputs& inputs, const Conditioning& conditioning,
                                   const Streams& grads) const {
  const at::NoGradGuard no_grad;
  const auto& shared = static_cast<const QwenConditioning&>(conditioning);
  const at::ScalarType type = edge_.image_in_weight.scalar_type();
  const auto linear = [&](EdgeTensor weight, EdgeTensor bias) {
    return EdgeLinear(weight, bias, edge_, edge_gradients_);
  };
  if (grads[0].defined()) {
    AddWeightGradients(linear(&QwenImageEdge::image_in_weight, &QwenImageEdge::image_in_bias),
                       Rows(inputs.hidden_states_BSC.to(type)), Rows(grads[0]));
  }
  if (grads[1].defined()) {
    const at::Tensor text = inputs.encoder_hidden_states_BTJ.to(type), grad = Rows(grads[1]);
    AddWeightGradients(linear(&QwenImageEdge::text_in_weight, &QwenImageEdge::text_in_bias),
                       Rows(RmsNorm(text, edge_.text_norm_weight, kEps)), grad);
    edge_gradients_.text_norm_weight.add_(
        RmsNormWeightGradient(at::mm(grad, edge_.text_in_weight), text, kEps));
  }
  const TimeLayers layers = EmbedTime(TimesOfGroups(inputs, config_), edge_);
  const at::Tensor embedding_grad = at::silu_backward(
      shared.time_grad_BGD.view(layers.embedding.sizes()).to(type), layers.embedding);
  AddWeightGradients(linear(&QwenImageEdge::time_2_weight, &QwenImageEdge::time_2_bias),
                     at::silu(layers.hidden), embedding_grad);
  const at::Tensor hidden_grad =
      at::silu_backward(at::mm(embedding_grad, edge_.time_2_weight), layers.hidden);
  AddWeightGradients(linear(&QwenImageEdge::time_1_weight, &QwenImageEdge::time_1_bias),
                     layers.sinusoid, hidden_grad);
}

}  // namespace blockswap::worker
