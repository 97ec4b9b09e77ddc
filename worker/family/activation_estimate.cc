// SPDX-License-Identifier: Apache-2.0
#include "worker/family/activation_estimate.h"

#include <algorithm>

namespace blockswap::worker {
namespace {

// Note [Activation estimate]
//
// A block is recomputed and run backward as a whole, so its peak is what its forward keeps for
// backward plus the largest working set of the backward. In units of one row (dim values in the
// model's type) per token, with adapters on all linears, forward keeps:
//
//   2  modulated inputs of q, k, v and of the first MLP linear: the adapters need them
//   2  q and k before their RMS norm
//   3  q, k, v as attention saw them, both streams joined
//   1  attention's output, which is also the input of the output projection
//   2  outputs of the output projection and of the MLP, for the gradient of the gates
//   1  the stream between attention and MLP, input of the second norm
//   m  MLP hidden values before GELU, which is computed again (m = mlp_ratio)
//   1  the block's output
//
// and backward has at its worst, at GELU: the gradients after and before it (2m) and those of the
// block's output and of the MLP's output (2), while the MLP's own output is gone (-1). Beside
// these: attention's softmax statistics (one fp32 per head and token), mean and deviation of two
// norms, a rank-wide product per token and linear, modulation gradients in fp32 (12 rows to a
// sample), and two copies of one adapter in the model's type.
//
// Outside the blocks and alive at that moment: inputs, target, RoPE tables, and the modulation rows
// of all blocks, which recomputing uses again. The head and the loss need less than a block does
// (4 rows of image tokens), and never at the same time, so they add nothing.
constexpr int64_t kKeptRows = 12;
constexpr int64_t kBackwardRows = 1;
constexpr int64_t kModulationRows = 12;  // six for each stream
constexpr int64_t kFloatBytes = 4;

int64_t Tokens(const TokenCounts& tokens) { return tokens.batch * (tokens.image + tokens.text); }

// Values of one block's modulation: a row to a sample, for two times where reference images have
// their own.
int64_t ModulationValues(const DoubleStreamShape& shape, const TokenCounts& tokens) {
  const int64_t times = shape.two_times ? 3 : 2;  // image and text, or twice image and text
  return kModulationRows / 2 * times * tokens.batch * shape.dim;
}

}  // namespace

int64_t BoundaryBytes(const DoubleStreamShape& shape, const TokenCounts& tokens) {
  return Tokens(tokens) * shape.dim * shape.dtype_bytes;
}

int64_t KeptActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                            int64_t block_rank_sum) {
  const int64_t rows = kKeptRows + shape.mlp_ratio;
  const int64_t statistics = Tokens(tokens) * (shape.heads + 4) * kFloatBytes;
  // Half of a block's linears see image tokens, half text.
  const int64_t low_rank = Tokens(tokens) * block_rank_sum * shape.dtype_bytes / 2;
  return rows * BoundaryBytes(shape, tokens) + statistics + low_rank +
         ModulationValues(shape, tokens) * kFloatBytes;
}

int64_t BlockActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                             int64_t largest_module_parameters, int64_t block_rank_sum) {
  const int64_t rows = kBackwardRows + 2 * shape.mlp_ratio;
  return KeptActivationBytes(shape, tokens, block_rank_sum) + rows * BoundaryBytes(shape, tokens) +
         2 * largest_module_parameters * shape.dtype_bytes;
}

int64_t EdgeActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                            int64_t num_blocks) {
  const int64_t image = tokens.batch * tokens.image, text = tokens.batch * tokens.text;
  const int64_t inputs = image * shape.in_channels * shape.dtype_bytes +
                         text * shape.text_features * shape.dtype_bytes;
  const int64_t output = image * shape.out_channels * (2 * kFloatBytes + shape.dtype_bytes);
  const int64_t rope = (tokens.image + tokens.text) * shape.head_dim * kFloatBytes;  // cos and sin
  const int64_t modulation = num_blocks * ModulationValues(shape, tokens) * shape.dtype_bytes;
  return inputs + output + rope + modulation + 4 * tokens.batch * shape.dim * shape.dtype_bytes;
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
