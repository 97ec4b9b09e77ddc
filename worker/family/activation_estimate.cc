// SPDX-License-Identifier: Apache-2.0
#include "worker/family/activation_estimate.h"

#include <algorithm>

namespace blockswap::worker {
namespace {

// Note [Activation estimate]
//
// A block is recomputed and run backward as a whole. What its forward keeps for backward, in rows
// (dim values in the model's type) per token of a stream, and who needs it:
//
//   1  modulated input of q, k, v: their adapters
//   2  q and k before their RMS norm
//   4  q, k, v as attention saw them, and its output: the joint buffers of both streams; the output
//      is also the input of the output projection
//   2  outputs of the output projection and of the MLP: the gradient of the gates, so only with an
//      adapter on the modulation
//   1  the stream between attention and MLP, input of the second norm
//   1  modulated input of the MLP: its adapter
//   m  MLP hidden values before GELU, which is computed again (m = mlp_ratio)
//   1  the block's output
//
// Beside these: attention's softmax statistics (one fp32 per head and token), mean and deviation of
// two norms, a rank-wide product per token and adapter, modulation gradients in fp32.
//
// Backward runs the nodes in reverse: the text stream to its attention output, the image stream
// likewise, attention, the projections. Its worst moment is at GELU of one stream, with the
// gradient of the block's output (1), that of the MLP's output (1), those after and before GELU
// (2m), while the MLP's own output is gone. Where that is the image's, the text stream has
// gradients of its attention output and of its input (2) in place of all that comes after its
// attention. A stream's gradient before GELU is not there yet when the adapter's factors are copied
// in the model's type, or a quantised weight is widened: the larger of them counts.
//
// Where few linears have adapters, attention's own backward is worse: both streams are there with
// the gradients of the block's output, of attention's output and of the input (3), the output
// itself (1), the joint gradients of the output and of q, k, v (4), and then those of each stream's
// own (3, one of them a view where the batch is one sample); before these, the kernel's scratch
// memory on the CPU, of which one thread's is counted.
//
// A quantised modulation is widened when a block's forward begins, with no more there than the
// gradients of its output.
//
// Nothing reads the text stream after the last block, which then does less; since its peak finds
// one saved input more than the peak of the block before, it is counted like the others.
constexpr int64_t kModulationRows = 6;  // of a stream
constexpr int64_t kFloatBytes = 4;

int64_t Tokens(const TokenCounts& tokens) { return tokens.batch * (tokens.image + tokens.text); }

// One stream's part of a block.
class Stream {
 public:
  Stream(const DoubleStreamShape& shape, const StreamAdapters& adapters, int64_t tokens)
      : shape_(shape), adapters_(adapters), tokens_(tokens) {}

  int64_t rows(int64_t count) const { return count * tokens_ * shape_.dim * shape_.dtype_bytes; }

  // Kept by what comes before the output projection.
  int64_t KeptByAttention() const {
    return rows(6 + (adapters_.projections ? 1 : 0)) +
           tokens_ *
               ((shape_.heads + 2) * kFloatBytes + adapters_.projection_ranks * shape_.dtype_bytes);
  }
  // Kept from there on, without the output.
  int64_t KeptAfterAttention() const {
    return rows(1 + shape_.mlp_ratio + (adapters_.mlp_in ? 1 : 0) +
                (adapters_.modulation ? 2 : 0)) +
           tokens_ * (2 * kFloatBytes + adapters_.later_ranks * shape_.dtype_bytes);
  }
  int64_t Kept() const { return KeptByAttention() + KeptAfterAttention(); }
  // When its own GELU is differentiated, and when the other stream's is, before and after.
  int64_t AtItsGelu(int64_t copies) const {
    const int64_t gone = adapters_.modulation ? 1 : 0;
    return Kept() + rows(2 + 1 + shape_.mlp_ratio - gone) +
           std::max(rows(shape_.mlp_ratio), copies);
  }
  int64_t BeforeItsTurn() const { return Kept() + rows(2); }
  int64_t AfterItsTurn() const { return KeptByAttention() + rows(2 + 2); }
  int64_t AtAttention() const { return KeptByAttention() + rows(3 + 1 + 4); }

 private:
  const DoubleStreamShape& shape_;
  const StreamAdapters& adapters_;
  const int64_t tokens_;
};

// Of LibTorch's attention backward on the CPU: scores and their gradients for a tile of queries and
// keys in fp32, and once more in a narrow type.
int64_t AttentionScratchBytes(const DoubleStreamShape& shape, const TokenCounts& tokens) {
  constexpr int64_t kKeysOfATile = 512;
  const int64_t length = tokens.image + tokens.text;
  const int64_t queries = length >= 768 ? 256 : length >= 192 ? 64 : 32;
  const int64_t narrow = shape.dtype_bytes == kFloatBytes ? 0 : shape.dtype_bytes;
  return 2 * queries * std::min(kKeysOfATile, length) * (kFloatBytes + narrow);
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
                            const BlockAdapters& adapters) {
  const Stream image(shape, adapters.image, tokens.batch * tokens.image);
  const Stream text(shape, adapters.text, tokens.batch * tokens.text);
  const bool trains = adapters.image.modulation || adapters.text.modulation;
  return image.Kept() + text.Kept() + (trains ? ModulationValues(shape, tokens) * kFloatBytes : 0);
}

int64_t BlockActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                             const BlockAdapters& adapters) {
  const Stream image(shape, adapters.image, tokens.batch * tokens.image);
  const Stream text(shape, adapters.text, tokens.batch * tokens.text);
  // An fp32 adapter is used as it is by an fp32 model.
  const int64_t factor =
      shape.dtype_bytes == kFloatBytes ? 0 : adapters.largest_factor * shape.dtype_bytes;
  const int64_t copies = std::max(factor, shape.widened_weight_bytes);
  const bool trains = adapters.image.modulation || adapters.text.modulation;
  const int64_t at_gelu = std::max(image.AtItsGelu(copies) + text.AfterItsTurn(),
                                   text.AtItsGelu(copies) + image.BeforeItsTurn());
  const int64_t own_grads = tokens.batch == 1 ? 2 : 3;
  const int64_t at_attention =
      image.AtAttention() + text.AtAttention() +
      std::max(image.rows(own_grads) + text.rows(own_grads), AttentionScratchBytes(shape, tokens));
  const int64_t modulation_grads = trains ? ModulationValues(shape, tokens) * kFloatBytes : 0;
  return std::max(std::max(at_gelu, at_attention) + modulation_grads,
                  image.rows(1) + text.rows(1) + shape.widened_modulation_bytes);
}

int64_t EdgeActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens) {
  const int64_t image = tokens.batch * tokens.image;
  // The last block's output, its norm, and a gradient of each; prediction, error and its gradient.
  return image * (4 * shape.dim * shape.dtype_bytes + 4 * shape.out_channels * kFloatBytes);
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
