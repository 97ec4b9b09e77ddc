// SPDX-License-Identifier: Apache-2.0
#include "worker/family/stream_phases.h"

#include <algorithm>

#include "worker/family/matmul_scratch.h"

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
// likewise, attention, the projections. In a stream's turn the worst moment is one of its three
// linears, each with the block's output and its gradient there:
//
//   MLP, second   the gradient of its output (1), while the MLP's own output is gone
//   MLP, first    the gradient of the hidden values (m), while these are gone
//   output        the gradients of the stream between attention and MLP and of the output (2),
//                 while what comes after attention is gone
//
// and then the moments of a linear (LinearBackward): the gradients of a trained weight or of an
// adapter, with the activated input computed again; the gradient of the input, with a widened
// weight or the adapter's factor in the model's type; GELU. A product of 16-bit values has scratch
// memory on the CPU (Note [Matmul scratch]). Where it is the image's turn, the text stream has
// gradients of its attention output and of its input (2) in place of all that comes after its
// attention.
//
// Where few linears have adapters, attention's own backward is worse: both streams are there with
// the gradients of the block's output, of attention's output and of the input (3), the output
// itself (1), the joint gradients of the output and of q, k, v (4), and then those of each stream's
// own (3, one of them a view where the batch is one sample); before these, the kernel's scratch
// memory on the CPU, of which one thread's is counted. The fp32 copies that the gradient of a
// trained RMS norm of q or k is made of (five rows) stay below the MLP's moments, where all linears
// train.
//
// A quantised modulation is widened when a block's forward begins, with no more there than the
// gradients of its output.
//
// The recompute is at its worst in the MLP's second linear, with the gradient of the block's output
// (1), its own output (1) and the activated hidden values (m): more than backward only where the
// scratch memory of that product is large. The image goes first, then the text.
//
// Nothing reads the text stream after the last block, which does without all that comes after the
// text's attention.
constexpr int64_t kFloatBytes = 4;

}  // namespace

int64_t StreamPhases::KeptByAttention() const {
  return rows(6 + (adapters_.projections ? 1 : 0)) +
         tokens_ *
             ((shape_.heads + 2) * kFloatBytes + adapters_.projection_ranks * shape_.dtype_bytes);
}

int64_t StreamPhases::Kept() const {
  const int64_t ranks = adapters_.out_rank + adapters_.mlp_in_rank + adapters_.mlp_out_rank;
  return KeptByAttention() +
         rows(1 + shape_.mlp_ratio + (adapters_.mlp_in ? 1 : 0) + (adapters_.modulation ? 2 : 0)) +
         tokens_ * (2 * kFloatBytes + ranks * shape_.dtype_bytes);
}

int64_t StreamPhases::InForward() const {
  const int64_t dim = shape_.dim, hidden = shape_.mlp_ratio * dim;
  return Kept() + rows(1 + shape_.mlp_ratio + (adapters_.modulation ? 0 : 1)) +
         shape_.widened_weight_bytes + Scratch(tokens_, dim, hidden);
}

int64_t StreamPhases::InBackward() const {
  const int64_t dim = shape_.dim, ratio = shape_.mlp_ratio;
  const int64_t gone = adapters_.modulation ? 1 : 0;
  const int64_t at_mlp_out =
      Kept() + rows(2 + 1 - gone) +
      LinearBackward({ratio * dim, dim, adapters_.mlp_out_rank, /*activates_input=*/true});
  const int64_t at_mlp_in = Kept() + rows(2 - gone) +
                            LinearBackward({dim, ratio * dim, adapters_.mlp_in_rank}) -
                            tokens_ * adapters_.mlp_out_rank * shape_.dtype_bytes;
  const int64_t at_out = KeptByAttention() + rows(2 + 2) +
                         tokens_ * adapters_.out_rank * shape_.dtype_bytes +
                         LinearBackward({dim, dim, adapters_.out_rank});
  return std::max({at_mlp_out, at_mlp_in, at_out});
}

int64_t StreamPhases::Scratch(int64_t rows, int64_t columns, int64_t inner,
                              bool left_transposed) const {
  return MatmulScratchBytes({rows, columns, inner, left_transposed}, shape_.dtype_bytes);
}

// Of a linear, beyond its output's gradient, with that of its input (LinearOp::Backward).
int64_t StreamPhases::LinearBackward(const Linear& linear) const {
  const int64_t input = tokens_ * linear.in * shape_.dtype_bytes;
  const int64_t low = tokens_ * linear.rank * shape_.dtype_bytes;
  const int64_t factor =
      shape_.dtype_bytes == kFloatBytes ? 0 : linear.rank * linear.in * shape_.dtype_bytes;
  int64_t peak =
      low + input + shape_.widened_weight_bytes + Scratch(tokens_, linear.in, linear.out);
  if (linear.rank > 0) {
    peak = std::max(peak, AdapterGradients(linear));
    peak = std::max(peak, low + input + factor + Scratch(tokens_, linear.in, linear.rank));
  }
  if (linear.activates_input) peak = std::max(peak, low + 2 * input);
  if (shape_.base_trains) {
    const int64_t activated = linear.activates_input ? input : 0;
    peak = std::max(peak, activated + Scratch(linear.out, linear.in, tokens_, true));
  }
  return peak;
}

int64_t StreamPhases::AdapterGradients(const Linear& linear) const {
  const int64_t activated = linear.activates_input ? tokens_ * linear.in * shape_.dtype_bytes : 0;
  const int64_t low = tokens_ * linear.rank * shape_.dtype_bytes;
  if (shape_.dtype_bytes == kFloatBytes) return activated + low;
  // A factor's gradient in the model's type, then once more as it is added up in fp32.
  const auto gradient = [&](int64_t rows, int64_t columns) {
    return rows * columns * shape_.dtype_bytes +
           std::max(Scratch(rows, columns, tokens_, true), rows * columns * kFloatBytes);
  };
  const int64_t up_copy =
      linear.out * linear.rank * shape_.dtype_bytes + Scratch(tokens_, linear.rank, linear.out);
  return activated + low +
         std::max({up_copy, gradient(linear.out, linear.rank), gradient(linear.rank, linear.in)});
}

}  // namespace blockswap::worker
