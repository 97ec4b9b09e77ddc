// SPDX-License-Identifier: Apache-2.0
#include "worker/family/activation_estimate.h"

#include <algorithm>

namespace blockswap::worker {
namespace {

// Note [Activation estimate]
//
// A block is recomputed and run backward as a whole, so its peak is what its forward keeps for
// backward plus the largest working set of the backward. In units of one row (dim values in the
// model's type) per token, forward keeps:
//
//   2   LN outputs before modulation, for the gradient of the scale (attention and MLP branch)
//   2   modulated inputs of q, k, v and of the first MLP linear: the adapters need them
//   2   q and k before their RMS norm
//   3   q, k, v as attention saw them, both streams joined
//   1   attention's output, which is also the input of the output projection
//   2   outputs of the output projection and of the MLP, for the gradient of the gates
//   1   the stream between attention and MLP, input of the second LN
//   2m  MLP hidden values before and after GELU (m = mlp_ratio)
//   1   the block's output
//
// and backward has at its worst, at GELU: the gradients before and after it (2m) beside the
// gradients of the block's output and of the middle stream (2). Attention's softmax statistics are
// one fp32 per head and token; an adapter keeps its rank-wide product per token, and holds its down
// and up once more in the model's type for the time of the block.
constexpr int64_t kKeptRows = 14;
constexpr int64_t kBackwardRows = 2;
constexpr int64_t kModulationRows = 12;  // six for each stream, one row per sample
constexpr int64_t kFloatBytes = 4;

int64_t Tokens(const TokenCounts& tokens) { return tokens.batch * (tokens.image + tokens.text); }

int64_t ModulationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens) {
  const int64_t rows =
      shape.modulation_per_token ? tokens.batch * (tokens.image + 1) : tokens.batch;
  return kModulationRows * rows * shape.dim * shape.dtype_bytes;
}

}  // namespace

int64_t BoundaryBytes(const DoubleStreamShape& shape, const TokenCounts& tokens) {
  return Tokens(tokens) * shape.dim * shape.dtype_bytes;
}

int64_t KeptActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                            int64_t block_rank_sum) {
  const int64_t rows = kKeptRows + 2 * shape.mlp_ratio;
  const int64_t statistics =
      Tokens(tokens) * (shape.heads + 4) * kFloatBytes;  // + mean, rstd of two LN
  const int64_t low_rank =
      Tokens(tokens) * block_rank_sum * shape.dtype_bytes / 2;  // half the linears per stream
  return rows * BoundaryBytes(shape, tokens) + statistics + low_rank +
         ModulationBytes(shape, tokens);
}

int64_t BlockActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                             int64_t block_adapter_parameters, int64_t block_rank_sum) {
  const int64_t rows = kBackwardRows + 2 * shape.mlp_ratio;
  return KeptActivationBytes(shape, tokens, block_rank_sum) + rows * BoundaryBytes(shape, tokens) +
         ModulationBytes(shape, tokens) + block_adapter_parameters * shape.dtype_bytes;
}

int64_t EdgeActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens) {
  const int64_t image = tokens.batch * tokens.image, text = tokens.batch * tokens.text;
  // Latents, noise and mixed latents in fp32, the mixed ones once more in the model's type; text as
  // given and in the model's type.
  const int64_t inputs = image * shape.in_channels * (3 * kFloatBytes + shape.dtype_bytes) +
                         text * shape.text_features * (kFloatBytes + 2 * shape.dtype_bytes);
  const int64_t rope = (tokens.image + tokens.text) * shape.head_dim * kFloatBytes;  // cos and sin
  const int64_t time = tokens.batch * shape.dim * 4 * shape.dtype_bytes;
  // The last block's streams and their gradient; LN, modulated LN and their gradients in the head;
  // output and loss in fp32.
  const int64_t streams = 2 * BoundaryBytes(shape, tokens);
  const int64_t head = 4 * image * shape.dim * shape.dtype_bytes;
  const int64_t loss = image * shape.out_channels * (4 * kFloatBytes + 2 * shape.dtype_bytes);
  return inputs + rope + time + streams + head + loss;
}

BlockFlops ForwardFlops(const DoubleStreamShape& shape, double image_tokens, double text_tokens,
                        double batch) {
  const auto dim = static_cast<double>(shape.dim);
  const double tokens = image_tokens + text_tokens;
  const double per_token =
      4 + 2 * static_cast<double>(shape.mlp_ratio);  // q, k, v, out and the MLP
  const double modulated = shape.modulation_per_token ? 3 : 2;
  BlockFlops flops;
  flops.linears = 2 * batch * dim * dim * (per_token * tokens + 6 * modulated);
  flops.attention = 4 * batch * tokens * tokens * dim;
  return flops;
}

}  // namespace blockswap::worker
