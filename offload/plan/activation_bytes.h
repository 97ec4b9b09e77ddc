// SPDX-License-Identifier: Apache-2.0
// How many bytes the activations of a step take at their peak, for each way to save them.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_ACTIVATION_BYTES_H_
#define BLOCKSWAP_OFFLOAD_PLAN_ACTIVATION_BYTES_H_

#include <cstdint>
#include <vector>

#include "offload/plan/block_profile.h"

namespace blockswap::offload {

// How the blocks' inputs and inner activations wait for their backward.
struct ActivationChoice {
  bool block_major = false;  // all micro-batches of a step are under way at once
  std::vector<bool> keeps;   // by block, instead of recomputing; empty: none
  int num_offloaded =
      0;  // the inputs of this many first blocks wait on the host: they wait longest

  bool Keeps(int block) const {
    return block < static_cast<int>(keeps.size()) && keeps[static_cast<size_t>(block)];
  }
};

struct ActivationBytes {
  int64_t device = 0;  // at the peak
  int64_t host = 0;    // saved inputs that wait there
};

// The peak is in the backward of some block, or around the blocks (embedding, head, loss), where
// every saved input and kept activation is held. With offloading, one more input is there than
// stays, and the inputs of the block that computes and of the one before it.
ActivationBytes ActivationPeak(const ModelProfile& model, int micro_batches,
                               const ActivationChoice& choice);

// The input of one block, one micro-batch.
int64_t BoundaryBytesOfBlock(const ModelProfile& model);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_ACTIVATION_BYTES_H_
