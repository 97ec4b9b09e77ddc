// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/kept_activations.h"

#include <algorithm>
#include <vector>

namespace blockswap::offload {

bool MayKeepActivations(const PlanRequest& request) {
  return request.constraints.checkpointing == Toggle::kAuto &&
         request.model.blocks[0].kept_activation_bytes > 0;
}

void KeepActivations(const PlanRequest& request, const Budgets& budgets, Candidate& candidate) {
  if (request.constraints.checkpointing != Toggle::kAuto || budgets.device_bytes == 0) return;
  const std::vector<BlockProfile>& blocks = request.model.blocks;
  std::vector<int> order;
  for (int block = 0; block < static_cast<int>(blocks.size()); ++block) {
    const bool streamed =
        std::binary_search(candidate.streamed.begin(), candidate.streamed.end(), block);
    if (!streamed && blocks[static_cast<size_t>(block)].kept_activation_bytes > 0) {
      order.push_back(block);
    }
  }
  const auto worth = [&blocks](int block) {
    const BlockProfile& profile = blocks[static_cast<size_t>(block)];
    return profile.forward_flops / static_cast<double>(profile.kept_activation_bytes);
  };
  // Late blocks hold theirs for the shortest time.
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return worth(a) != worth(b) ? worth(a) > worth(b) : a > b;
  });
  ActivationChoice choice = candidate.activations;
  choice.keeps.resize(blocks.size(), false);
  const int64_t before =
      ActivationPeak(request.model, request.micro_batches, candidate.activations).device;
  const int64_t spare = budgets.device_bytes - candidate.device_bytes;
  for (const int block : order) {
    choice.keeps[static_cast<size_t>(block)] = true;
    if (ActivationPeak(request.model, request.micro_batches, choice).device - before <= spare) {
      continue;
    }
    choice.keeps[static_cast<size_t>(block)] = false;
    break;
  }
  SetActivations(request, choice, candidate);
}

}  // namespace blockswap::offload
