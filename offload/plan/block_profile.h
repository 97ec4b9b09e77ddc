// SPDX-License-Identifier: Apache-2.0
// What the planner has to know of a model: the packed layout, size and relative cost of every block.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_BLOCK_PROFILE_H_
#define BLOCKSWAP_OFFLOAD_PLAN_BLOCK_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace blockswap::offload {

// Every tensor of a packed block starts at a multiple of this: the alignment CUDA kernels are tuned for.
inline constexpr int64_t kTensorAlignment = 256;

struct TensorExtent {
  int64_t offset = 0;  // from the start of the packed block, a multiple of kTensorAlignment
  int64_t bytes = 0;   // of the tensor itself, without padding
};

// One linear of a block, the unit that moves at layer granularity: its weight, bias and scales, side by side in the packed block.
struct LayerProfile {
  std::vector<int> tensors;  // indices into BlockProfile::tensors
  int64_t offset = 0;        // from the start of the packed block, a multiple of kTensorAlignment
  int64_t bytes = 0;         // to the end of its last tensor's padding
};

// One block as the swapper moves it: all its tensors packed, one copy.
struct BlockProfile {
  std::string name;                   // "transformer_blocks.7"
  std::vector<TensorExtent> tensors;  // in the family's order; index = TensorIndex of a lease
  int64_t bytes = 0;                  // packed size, a multiple of kTensorAlignment
  double forward_flops = 0;           // of one forward at the mean token count; only ratios between blocks matter
  // What the block holds from forward to backward, beyond its saved input, when it is not recomputed; one micro-batch.
  int64_t kept_activation_bytes = 0;
  // For layer granularity. Tensors of no layer (norms) stay on the device. The orders are indices into `layers` as a forward asks
  // for them, and as the backward of one block does: its recompute, then back. Asked twice in a row counts once.
  std::vector<LayerProfile> layers;
  std::vector<int> forward_layers, backward_layers;
};

// One list of alike blocks (Qwen has one, FLUX two), in execution order.
struct BlockList {
  std::string name;          // "transformer_blocks"
  int first = 0;             // index of its first block in ModelProfile::blocks
  int count = 0;
  int max_streamed = 0;      // blocks of this list that may be away
};

// Bytes the device needs besides block weights, at the largest token count of the dataset.
struct ModelProfile {
  std::vector<BlockProfile> blocks;
  std::vector<BlockList> lists;
  int max_blocks_to_swap = 0;            // in the user's numbering (facts/musubi.md 1.3)
  int64_t edge_bytes = 0;                // weights outside the blocks
  int64_t adapter_bytes = 0;             // trained parameters and their gradients
  int64_t optimizer_bytes = 0;
  int64_t boundary_bytes = 0;            // saved block inputs of one micro-batch, all blocks together
  int64_t block_activation_bytes = 0;    // peak of one block's recompute and backward
  int64_t last_block_activation_bytes = 0;  // the same of the last block, where it does less than the others; 0: it does not
  int64_t edge_activation_bytes = 0;     // peak of what happens outside the blocks (embedding, head, loss), conditioning included
  int64_t conditioning_bytes = 0;        // of one micro-batch, alive in every phase of it; beside the three peaks above
  int64_t gradient_bytes = 0;            // base that trains: the largest gradient of one block's weights, on the device at a time
  int64_t host_state_bytes = 0;          // base that trains: full-precision masters, moments and gradient sums on the host
  int64_t host_evaluated_bytes = 0;      // block weights that the host evaluates: never on the device nor on the link
  double forward_flops = 0;              // all blocks
  double recompute_over_forward = 1.0;   // what a block that keeps its activations saves of the next line
  double backward_over_forward = 2.0;    // recompute + backward over forward, by operation count
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_BLOCK_PROFILE_H_
