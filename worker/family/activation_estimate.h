// SPDX-License-Identifier: Apache-2.0
// Estimates the device bytes and operations of one double-stream block and of what is around the
// blocks.
#ifndef BLOCKSWAP_WORKER_FAMILY_ACTIVATION_ESTIMATE_H_
#define BLOCKSWAP_WORKER_FAMILY_ACTIVATION_ESTIMATE_H_

#include <cstdint>

#include "worker/family/family.h"

namespace blockswap::worker {

// What the estimates depend on. Counts are per sample; `batch` multiplies them.
struct DoubleStreamShape {
  int64_t dim = 0, heads = 0, head_dim = 0;
  int64_t mlp_ratio = 4;
  int64_t in_channels = 0, out_channels = 0, text_features = 0;  // of a token
  bool two_times = false;  // image tokens of one sample see two times (zero_cond_t)
  int64_t dtype_bytes = 2;
  // Bytes of the largest weight of a stream, and of a modulation, that an op widens for itself; 0:
  // weights are used as they are.
  int64_t widened_weight_bytes = 0, widened_modulation_bytes = 0;
  bool base_trains = false;
};

// Where the block with most of it has adapters, in one stream; where the base trains, nowhere, yet
// the gradient of a weight needs the input that an adapter there would.
struct StreamAdapters {
  bool projections = false;  // on query, key or value
  bool mlp_in = false, modulation = false;
  int64_t projection_ranks = 0;  // of query, key and value together
  int64_t out_rank = 0, mlp_in_rank = 0, mlp_out_rank = 0;
};
struct BlockAdapters {
  StreamAdapters image, text;
};

// Nothing reads the text stream behind the last block, which does less.
enum class BlockPlace { kInner, kLast };

// Peak of a block's recompute and backward, beyond the saved inputs of this block and those before
// it; see Note [Activation estimate] in stream_phases.cc.
int64_t BlockActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                             const BlockAdapters& adapters, BlockPlace place);
// What one block holds from forward to backward, beyond its input, when it is not recomputed. Its
// output is the next one's input.
int64_t KeptActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                            const BlockAdapters& adapters, BlockPlace place);
// Peak of head and loss, beyond the saved inputs of all blocks.
int64_t EdgeActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens);
// Alive from the start of a micro-batch to its end: inputs, target, output, what blocks share.
int64_t ConditioningBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                          int64_t num_blocks);
// One block's input.
int64_t BoundaryBytes(const DoubleStreamShape& shape, const TokenCounts& tokens);

struct BlockFlops {
  double linears = 0, attention = 0;
  double forward() const { return linears + attention; }
};
// Counted as two operations per multiply-add.
BlockFlops ForwardFlops(const DoubleStreamShape& shape, double image_tokens, double text_tokens,
                        double batch);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_FAMILY_ACTIVATION_ESTIMATE_H_
