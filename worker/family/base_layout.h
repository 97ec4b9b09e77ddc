// SPDX-License-Identifier: Apache-2.0
// How the parameters of a base that trains lie in host memory: one flat buffer for the edges, one
// for each block.
#ifndef BLOCKSWAP_WORKER_FAMILY_BASE_LAYOUT_H_
#define BLOCKSWAP_WORKER_FAMILY_BASE_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/family/family.h"

namespace blockswap::worker {

// What is updated at once. Every tensor starts at a multiple of 64 elements; the padding between
// them is zero, gets no gradient and so stays zero.
struct BaseUnit {
  std::string name;  // "edges", "transformer_blocks.3"
  std::vector<TensorSpec> tensors;
  std::vector<int64_t> offsets;  // of each tensor, in elements
  int64_t elements = 0;          // padding included
};

int64_t ElementsOf(const TensorSpec& tensor);

// Unit 0 is the edges, unit 1 + i is block i.
std::vector<BaseUnit> BaseUnitsOf(const ModelDescription& model);

// Device bytes of gradients: of the largest block in the model's type, of the edges in fp32.
int64_t BaseGradientBytes(const std::vector<BaseUnit>& units, Dtype dtype);
// Host bytes of masters, both moments and gradient sums, all fp32.
int64_t BaseStateBytes(const std::vector<BaseUnit>& units);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_FAMILY_BASE_LAYOUT_H_
