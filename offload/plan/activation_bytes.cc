// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/activation_bytes.h"

#include <algorithm>

namespace blockswap::offload {
namespace {

// How many saved inputs are on the device, see Note [Boundaries away] in worker/train. Those that
// leave do so in block order, so the last of them is still there when the others are away; in
// backward a block's input comes back while the block behind it computes.
class InputsHeld {
 public:
  InputsHeld(const ActivationChoice& choice, int num_blocks) : choice_(choice) {
    for (int block = 0; block < num_blocks; ++block) {
      if (Leaves(block)) last_ = block;
    }
  }

  // REQUIRES: called for every block in order. Those up to `block` still need theirs.
  void Add(int block) {
    // A block that keeps its activations holds its output, the next one's input.
    const bool held = block > 0 && choice_.Keeps(block - 1);
    if (!IsAway(block) || held) ++stayed_;
  }
  // Around the blocks, and in the backward of `block`, the last one added.
  int64_t stayed() const { return stayed_; }
  int64_t InBackward(int block) const {
    return stayed_ + (IsAway(block) ? 1 : 0) + (block > 0 && IsAway(block - 1) ? 1 : 0);
  }

 private:
  bool Leaves(int block) const { return block < choice_.num_offloaded && !choice_.Keeps(block); }
  bool IsAway(int block) const { return Leaves(block) && block != last_; }

  const ActivationChoice& choice_;
  int last_ = -1;
  int64_t stayed_ = 0;
};

// The family's own sum is exact; it need not be a multiple of the blocks.
int64_t BytesOfInputs(const ModelProfile& model, int64_t count) {
  return count == static_cast<int64_t>(model.blocks.size()) ? model.boundary_bytes
                                                            : count * BoundaryBytesOfBlock(model);
}

int64_t BlockActivations(const ModelProfile& model, int block) {
  const bool is_last = block + 1 == static_cast<int>(model.blocks.size());
  return is_last && model.last_block_activation_bytes > 0 ? model.last_block_activation_bytes
                                                          : model.block_activation_bytes;
}

}  // namespace

int64_t BoundaryBytesOfBlock(const ModelProfile& model) {
  const int64_t num_blocks = std::max<int64_t>(1, static_cast<int64_t>(model.blocks.size()));
  return (model.boundary_bytes + num_blocks - 1) / num_blocks;
}

ActivationBytes ActivationPeak(const ModelProfile& model, int micro_batches,
                               const ActivationChoice& choice) {
  const int num_blocks = static_cast<int>(model.blocks.size());
  const int64_t at_once = choice.block_major ? micro_batches : 1;
  InputsHeld inputs(choice, num_blocks);
  int64_t kept = 0;  // by the blocks up to and including `block`
  int64_t peak = 0;
  for (int block = 0; block < num_blocks; ++block) {
    const int64_t own =
        choice.Keeps(block) ? model.blocks[static_cast<size_t>(block)].kept_activation_bytes : 0;
    kept += own;
    // The peak of a block includes what it keeps for its own backward.
    inputs.Add(block);
    const int64_t held = BytesOfInputs(model, inputs.InBackward(block));
    peak = std::max(peak, at_once * (held + kept) - own + BlockActivations(model, block));
  }
  const int64_t around =
      at_once * (BytesOfInputs(model, inputs.stayed()) + kept) + model.edge_activation_bytes;
  ActivationBytes bytes;
  bytes.device = std::max(peak, around) + at_once * model.conditioning_bytes;
  // The other micro-batches wait at the same block with their stream or its gradient.
  bytes.device += (at_once - 1) * BoundaryBytesOfBlock(model);
  bytes.host = at_once * BoundaryBytesOfBlock(model) * std::min(choice.num_offloaded, num_blocks);
  return bytes;
}

}  // namespace blockswap::offload
