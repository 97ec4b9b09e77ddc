// SPDX-License-Identifier: Apache-2.0
// Four published models as the planner sees them, the video models at two sizes: block sizes and
// operation counts, from facts/architectures.md.
#ifndef BLOCKSWAP_TESTS_BENCH_CARD_MODELS_H_
#define BLOCKSWAP_TESTS_BENCH_CARD_MODELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "offload/plan/block_profile.h"

namespace blockswap::bench {

struct BlockShape {
  int count = 0;
  int64_t parameters = 0;
  int64_t modulation_parameters = 0;  // of linears that see the time embedding alone
  int streams = 1;                    // with weights of their own; a token passes one
  // The other linears, in the order in which a forward asks for them: parameters of each. What is
  // left over are norms and tables.
  std::vector<int64_t> linears;
};

struct CardModel {
  std::string name;
  std::vector<BlockShape> lists;
  int64_t total_parameters = 0;
  int64_t tokens = 0;           // of the sample, text included
  int64_t width = 0;            // of the residual stream
  int64_t attention_width = 0;  // heads times head size
  int64_t lora_parameters_per_rank = 0;
  std::string sample;  // what `tokens` is
};

std::vector<CardModel> CardModels();

// bf16 weights, LoRA of rank 16 with AdamW, one sample a step. Modulation linears cross the link or
// do not.
offload::ModelProfile ProfileOf(const CardModel& model, bool host_modulation);

}  // namespace blockswap::bench

#endif  // BLOCKSWAP_TESTS_BENCH_CARD_MODELS_H_
