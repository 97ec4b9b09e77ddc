// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/block_costs.h"

#include <algorithm>
#include <limits>

namespace blockswap::offload {
namespace {

double Slower(double rate, double tier_rate) {
  return tier_rate > 0 ? std::min(rate, tier_rate) : rate;
}

double RateOf(const LinkProfile& link, double rate, HostTier tier) {
  switch (tier) {
    case HostTier::kPinned:
      return rate;
    case HostTier::kPageable:
      return Slower(rate, link.pageable_bytes_per_second);
    case HostTier::kFile:
      return Slower(rate, link.file_bytes_per_second);
  }
  return rate;
}

double Seconds(int64_t bytes, double rate, const LinkProfile& link) {
  return static_cast<double>(bytes) / rate + absl::ToDoubleSeconds(link.latency);
}

// Both directions are busy at once: blocks go both ways, or saved inputs do beside the blocks.
bool UsesBothWays(const PlanRequest& request, const ActivationChoice& activations) {
  return request.constraints.mode == TransferMode::kExchange || activations.num_offloaded > 0;
}

}  // namespace

bool SpeedsAreKnown(const PlanRequest& request) {
  return request.compute_flops_per_second > 0 && request.link.h2d_bytes_per_second > 0;
}

BlockCosts MakeCosts(const PlanRequest& request, const std::vector<HostTier>& tiers,
                     const ActivationChoice& activations) {
  const ModelProfile& model = request.model;
  const LinkProfile& link = request.link;
  const double speed = request.compute_flops_per_second;
  const double at_once = activations.block_major ? request.micro_batches : 1;
  const bool both_ways = UsesBothWays(request, activations);
  double h2d = link.h2d_bytes_per_second > 0 ? link.h2d_bytes_per_second
                                             : std::numeric_limits<double>::infinity();
  double d2h = link.d2h_bytes_per_second > 0 ? link.d2h_bytes_per_second : h2d;
  if (both_ways) {
    h2d = Slower(h2d, link.duplex_h2d_bytes_per_second);
    d2h = Slower(d2h, link.duplex_d2h_bytes_per_second);
  }
  double total = 0;
  for (const BlockProfile& block : model.blocks) total += block.forward_flops;
  BlockCosts costs;
  const int num_blocks = static_cast<int>(model.blocks.size());
  const int64_t boundary = static_cast<int64_t>(at_once) * BoundaryBytesOfBlock(model);
  for (int i = 0; i < num_blocks; ++i) {
    const BlockProfile& block = model.blocks[static_cast<size_t>(i)];
    const double share = total > 0 ? block.forward_flops / total : 1.0 / num_blocks;
    const double forward = speed > 0 ? at_once * model.forward_flops * share / speed : 0.0;
    const double saved = activations.Keeps(i) ? model.recompute_over_forward : 0.0;
    const HostTier tier = tiers.empty() ? HostTier::kPinned : tiers[static_cast<size_t>(i)];
    costs.forward.push_back(forward);
    costs.backward.push_back(forward * std::max(0.0, model.backward_over_forward - saved));
    costs.h2d.push_back(Seconds(block.bytes, RateOf(link, h2d, tier), link));
    costs.d2h.push_back(Seconds(block.bytes, RateOf(link, d2h, tier), link));
    if (activations.num_offloaded == 0) continue;
    const bool away = i < activations.num_offloaded;
    costs.boundary_h2d.push_back(away ? Seconds(boundary, h2d, link) : 0.0);
    costs.boundary_d2h.push_back(away ? Seconds(boundary, d2h, link) : 0.0);
  }
  return costs;
}

}  // namespace blockswap::offload
