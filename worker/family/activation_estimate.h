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
};

// Peak of a block's recompute and backward, see Note [Activation estimate] in the .cc.
// `block_rank_sum`: ranks of all modules of the block that has most.
int64_t BlockActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                             int64_t largest_module_parameters, int64_t block_rank_sum);
// What one block keeps when it is not recomputed.
int64_t KeptActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
                            int64_t block_rank_sum);
// What stays alive outside the blocks while they run backward: inputs, target, conditioning.
int64_t EdgeActivationBytes(const DoubleStreamShape& shape, const TokenCounts& tokens,
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
