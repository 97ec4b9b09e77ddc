// SPDX-License-Identifier: Apache-2.0
#include "worker/family/activation_estimate.h"

#include <algorithm>

#include "worker/family/matmul_scratch.h"
#include "worker/family/stream_phases.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kModulationRows = 6;  // of a stream
constexpr int64_t kFloatBytes = 4;

int64_t Tokens(const TokenCounts& tokens) { return tokens.batch * (tokens.image + tokens.text); }

// Of LibTorch's attention backward on the CPU: scores and their gradients for a tile of queries and
// keys in fp32, and once more in a narrow type; then its largest product, the gradient of the keys.
int64_t AttentionScratchBytes(const DoubleStreamShape& shape, const TokenCounts& tokens) {
  constexpr int64_t kKeysOfATile = 512;
  const int64_t length = tokens.image + tokens.text;
  const int64_t queries = length >= 768 ? 256 : length >= 192 ? 64 : 32;
  const int64_t keys = std::min(kKeysOfATile, length);
  const int64_t narrow = shape.dtype_bytes == kFloatBytes ? 0 : shape.dtype_bytes;
  return 2 * queries * keys * (kFloatBytes + narrow) +
         MatmulScratchBytes({keys, shape.head_dim, std::min(queries, length), true},
                            shape.dtype_bytes);
}

// Values of one block's modulation: a row to a sample, for two times where reference images have
// their own.
int64_t ModulationValues(const DoubleStreamShape& shape, const TokenCounts& tokens) {
  const int64_t times = shape.two_times ? 3 : 2;  // image and text, or twice image and text
  return kModulationRows * times * tokens.batch * shape.dim;
}

}  // namespace

int64_t BoundaryBytes(const DoubleStreamShape& shape, const TokenCounts& tokens) {
  return Tokens(tokens) * shape.dim * shape.dtype_bytes;
}

int64_t KeptActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                            const BlockAdapters& adapters, BlockPlace place) {
  const StreamPhases image(shape, adapters.image, tokens.batch * tokens.image);
  const StreamPhases text(shape, adapters.text, tokens.batch * tokens.text);
  const bool trains = adapters.image.modulation || adapters.text.modulation;
  return image.Kept() + (place == BlockPlace::kLast ? text.KeptByAttention() : text.Kept()) +
         (trains ? ModulationValues(shape, tokens) * kFloatBytes : 0);
}

int64_t BlockActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                             const BlockAdapters& adapters, BlockPlace place) {
  const StreamPhases image(shape, adapters.image, tokens.batch * tokens.image);
  const StreamPhases text(shape, adapters.text, tokens.batch * tokens.text);
  const int64_t own_grads = tokens.batch == 1 ? 2 : 3;
  const int64_t beside_attention =
      std::max(image.rows(own_grads) + text.rows(own_grads), AttentionScratchBytes(shape, tokens));
  int64_t peak = 0;
  if (place == BlockPlace::kLast) {
    // Without the text's output there is no gradient of anything after its attention.
    peak = std::max(
        {image.InForward() + text.KeptByAttention(), image.InBackward() + text.KeptByAttention(),
         image.AtAttention() + text.AtAttention() - text.rows(3 + 1) + beside_attention});
  } else {
    peak = std::max({image.InForward() + text.KeptByAttention() + text.rows(1),
                     text.InForward() + image.BeforeBackward(),
                     text.InBackward() + image.BeforeBackward(),
                     image.InBackward() + text.AfterBackward(),
                     image.AtAttention() + text.AtAttention() + beside_attention});
  }
  const bool trains = adapters.image.modulation || adapters.text.modulation;
  const int64_t modulation_grads = trains ? ModulationValues(shape, tokens) * kFloatBytes : 0;
  return std::max(peak + modulation_grads,
                  image.rows(1) + text.rows(1) + shape.widened_modulation_bytes);
}

int64_t EdgeActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens) {
  const int64_t image = tokens.batch * tokens.image;
  const int64_t row = image * shape.dim * shape.dtype_bytes;
  // The last block's output, its norm, and a gradient of each; prediction, error and its gradient.
  int64_t backward =
      2 * row + MatmulScratchBytes({image, shape.dim, shape.out_channels}, shape.dtype_bytes);
  // A trained output layer: its input and the gradient of its output in fp32, where they are not.
  if (shape.base_trains && shape.dtype_bytes != kFloatBytes) {
    backward = std::max(backward, image * (shape.dim + shape.out_channels) * kFloatBytes);
  }
  return 2 * row + backward + 4 * image * shape.out_channels * kFloatBytes;
}

int64_t ConditioningBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                          int64_t num_blocks) {
  constexpr int64_t kMaskBytes = 8;
  const int64_t image = tokens.batch * tokens.image, text = tokens.batch * tokens.text;
  const int64_t inputs = image * shape.in_channels * shape.dtype_bytes +
                         text * (shape.text_features * shape.dtype_bytes + kMaskBytes);
  const int64_t outputs = image * shape.out_channels * (kFloatBytes + shape.dtype_bytes);
  const int64_t rope = (tokens.image + tokens.text) * shape.head_dim * kFloatBytes;  // cos and sin
  const int64_t modulation = num_blocks * ModulationValues(shape, tokens) * shape.dtype_bytes;
  const int64_t time = (shape.two_times ? 3 : 2) * tokens.batch * shape.dim * shape.dtype_bytes;
  return inputs + outputs + rope + modulation + time + Tokens(tokens) * shape.dtype_bytes;
}

BlockFlops ForwardFlops(const DoubleStreamShape& shape, double image_tokens, double text_tokens,
                        double batch) {
  const auto dim = static_cast<double>(shape.dim);
  const double tokens = image_tokens + text_tokens;
  const double per_token =
      4 + 2 * static_cast<double>(shape.mlp_ratio);  // q, k, v, out and the MLP
  const double modulated = shape.two_times ? 3 : 2;
  BlockFlops flops;
  flops.linears = 2 * batch * dim * dim * (per_token * tokens + 6 * modulated);
  flops.attention = 4 * batch * tokens * tokens * dim;
  return flops;
}

}  // namespace blockswap::worker
