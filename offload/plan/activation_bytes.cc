// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/activation_bytes.h"

#include <algorithm>

namespace blockswap::offload {
namespace {

// One goes down or comes back while the next one is computed.
constexpr int kBoundariesUnderWay = 2;

// Saved inputs on the device when the blocks up to `block` still need theirs.
int64_t BoundariesHeld(const ModelProfile& model, int num_offloaded, int block) {
  const int num_blocks = static_cast<int>(model.blocks.size());
  const int64_t each = BoundaryBytesOfBlock(model);
  const int offloaded = std::min(num_offloaded, block + 1);
  const int away = std::max(0, offloaded - kBoundariesUnderWay);
  // The family's own sum is exact; it need not be a multiple of the blocks.
  const int64_t all = block + 1 == num_blocks ? model.boundary_bytes : each * (block + 1);
  return std::max<int64_t>(0, all - each * away);
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
  int64_t kept = 0;  // by the blocks up to and including `block`
  int64_t peak = 0;
  for (int block = 0; block < num_blocks; ++block) {
    const int64_t own =
        choice.Keeps(block) ? model.blocks[static_cast<size_t>(block)].kept_activation_bytes : 0;
    kept += own;
    // The peak of a block includes what it keeps for its own backward.
    const int64_t held = BoundariesHeld(model, choice.num_offloaded, block);
    peak = std::max(peak, at_once * (held + kept) - own + model.block_activation_bytes);
  }
  const int64_t around =
      at_once * (BoundariesHeld(model, choice.num_offloaded, num_blocks - 1) + kept) +
      model.edge_activation_bytes;
  ActivationBytes bytes;
  bytes.device = std::max(peak, around) + at_once * model.conditioning_bytes;
  // The other micro-batches wait at the same block with their stream or its gradient.
  bytes.device += (at_once - 1) * BoundaryBytesOfBlock(model);
  bytes.host = at_once * BoundaryBytesOfBlock(model) * std::min(choice.num_offloaded, num_blocks);
  return bytes;
}

}  // namespace blockswap::offload
