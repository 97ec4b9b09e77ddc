// SPDX-License-Identifier: Apache-2.0
// The double-stream transformer block of Qwen-Image, FLUX and HunyuanVideo.
#ifndef BLOCKSWAP_WORKER_MODEL_DOUBLE_BLOCK_H_
#define BLOCKSWAP_WORKER_MODEL_DOUBLE_BLOCK_H_

#include "worker/model/attention.h"
#include "worker/model/linear.h"
#include "worker/model/modulation.h"

namespace blockswap::worker {

// Weights of one stream in one block.
struct StreamWeights {
  LinearRef query, key, value, attention_out, mlp_in, mlp_out, modulation;
  WeightRef query_norm, key_norm;
};

// Rows of a block's modulation linear, in order.
enum ModulationRow : int64_t {
  kShift1,
  kScale1,
  kGate1,
  kShift2,
  kScale2,
  kGate2,
  kNumModulationRows
};

struct DoubleBlockSetting {
  JointAttentionSetting attention;
  double norm_eps = 1e-6;
  // False in a model's last block where nothing reads its text stream: the text output is then the
  // block's text input.
  bool text_continues = true;
};

struct DoubleStreams {
  at::Tensor image_BSD, text_BTD;
};

DoubleStreams ForwardDoubleBlock(const DoubleStreams& streams, const StreamWeights& image,
                                 const StreamWeights& text, const Modulation& image_modulation,
                                 const Modulation& text_modulation,
                                 const DoubleBlockSetting& setting);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_MODEL_DOUBLE_BLOCK_H_
