// SPDX-License-Identifier: Apache-2.0
// Small models of random bytes for tests of planning and swapping.
#ifndef BLOCKSWAP_TESTS_FAKES_FAKE_MODEL_H_
#define BLOCKSWAP_TESTS_FAKES_FAKE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "offload/plan/planner.h"
#include "offload/swap/block_swapper.h"

namespace blockswap::offload {

struct FakeModel {
  std::vector<BlockProfile> blocks;
  std::vector<std::vector<std::byte>> contents;  // packed, by block

  // Serves `contents`. REQUIRES: the model outlives the reader.
  BlockReader reader() const;
  // A request without limits, to be narrowed by the test.
  PlanRequest request() const;
  int64_t total_bytes() const;
};

// Blocks of one to four tensors of 1 to `max_tensor_bytes` bytes; all alike or each of its own
// shape.
FakeModel MakeFakeModel(std::mt19937_64& random, int num_blocks, int64_t max_tensor_bytes,
                        bool alike);

// Blocks of one to `max_layers` layers, of one or two tensors each, and up to two tensors of no
// layer between them. Passes ask for the layers in some order, and back.
FakeModel MakeLayeredModel(std::mt19937_64& random, int num_blocks, int max_layers,
                           int64_t max_tensor_bytes, bool alike);

// `num_blocks` blocks of one tensor of `bytes` bytes each, block b filled with bytes that depend on
// b.
FakeModel MakeUniformModel(int num_blocks, int64_t bytes);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_TESTS_FAKES_FAKE_MODEL_H_
