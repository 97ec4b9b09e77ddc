// SPDX-License-Identifier: Apache-2.0
// Joint attention of two streams: per-head norm and rotation of queries and keys, one softmax over
// both, split again.
//
// Shape legend: B batch, T text tokens, S image tokens, L = T + S, H heads, D head width, E = H *
// D.
#ifndef BLOCKSWAP_WORKER_MODEL_ATTENTION_H_
#define BLOCKSWAP_WORKER_MODEL_ATTENTION_H_

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "worker/model/model.h"
#include "worker/model/rope.h"

namespace blockswap::worker {

// Projections of one stream, before norm and rotation.
struct AttentionProjections {
  at::Tensor query_BLE, key_BLE, value_BLE;
  WeightRef query_norm, key_norm;
};

// What all blocks of a pass share.
struct JointAttentionSetting {
  int64_t num_heads = 0;
  double norm_eps = 1e-6;
  RotaryTable table;         // of [text, image]
  at::Tensor key_bias_B11L;  // 0 where attended, -inf where not, in the model's type; undefined:
                             // everything is
};

struct JointAttentionOutput {
  at::Tensor text_BTE, image_BSE;
};

// Order of the joint sequence: [text, image].
JointAttentionOutput JointAttention(const AttentionProjections& text,
                                    const AttentionProjections& image,
                                    const JointAttentionSetting& setting);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_ATTENTION_H_
