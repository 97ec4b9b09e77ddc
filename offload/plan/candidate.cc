// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/candidate.h"

#include <algorithm>
#include <numeric>

#include "offload/plan/layer_schedule.h"
#include "offload/plan/slot_layout.h"

namespace blockswap::offload {
namespace {

int ListLimit(const BlockList& list, TransferMode mode) {
  const int limit = std::min(list.count, list.max_streamed);
  return mode == TransferMode::kExchange ? std::min(limit, list.count - 1) : limit;
}

// Placement and schedules of everything else, for an h2d_only plan.
void PlaceGroups(const PlanRequest& request, std::vector<SlotGroup> groups, Candidate& candidate) {
  const std::vector<BlockProfile>& blocks = request.model.blocks;
  candidate.resident_bytes = 0;
  for (const BlockProfile& block : blocks) candidate.resident_bytes += block.bytes;
  for (const SlotGroup& group : groups) {
    int64_t largest = 0;
    for (const int block : group.blocks) {
      largest = std::max(largest, blocks[block].bytes);
      candidate.resident_bytes -= blocks[block].bytes;
      candidate.streamed.push_back(block);
    }
    candidate.slots += group.slots;
    candidate.ring_bytes += group.slots * largest;
    candidate.slot_bytes = std::max(candidate.slot_bytes, largest);
    candidate.slot_sizes.insert(candidate.slot_sizes.end(), static_cast<size_t>(group.slots),
                                largest);
  }
  std::sort(candidate.slot_sizes.begin(), candidate.slot_sizes.end());
  if (candidate.slot_sizes.empty() || candidate.slot_sizes.front() == candidate.slot_bytes) {
    candidate.slot_sizes.clear();
  }
  std::sort(candidate.streamed.begin(), candidate.streamed.end());
  candidate.groups = std::move(groups);
  const int64_t buffers = std::min(candidate.slots, kMostStagingBuffers) * candidate.slot_bytes;
  candidate.read_buffer_bytes = buffers;
  if (request.copies_need_pinned_memory) candidate.staging_bytes = buffers;
}

// The window takes the two largest linears; what belongs to none stays on the device.
void PlaceLayers(const PlanRequest& request, std::vector<int> streamed, Candidate& candidate) {
  const std::vector<BlockProfile>& blocks = request.model.blocks;
  for (const BlockProfile& block : blocks) candidate.resident_bytes += block.bytes;
  int64_t largest = 0;
  int64_t second = 0;
  for (const int block : streamed) {
    candidate.resident_bytes -= blocks[block].bytes - LayoutRest(blocks[block]).bytes;
    for (const LayerProfile& layer : blocks[block].layers) {
      second = std::max(second, std::min(largest, layer.bytes));
      largest = std::max(largest, layer.bytes);
    }
  }
  candidate.ring_bytes = largest + second;
  if (request.copies_need_pinned_memory) {
    candidate.staging_bytes = kLayerStagingBuffers * largest;
  }
  candidate.streamed = std::move(streamed);
}

void PlaceRing(const PlanRequest& request, const std::vector<BlockList>& lists,
               const std::vector<int>& per_list, int ring_size, Candidate& candidate) {
  SlotGroup group;
  for (size_t i = 0; i < lists.size(); ++i) {
    for (int offset : EvenlySpaced(lists[i].count, per_list[i])) {
      group.blocks.push_back(lists[i].first + offset);
    }
  }
  std::sort(group.blocks.begin(), group.blocks.end());
  if (StreamsLayers(request)) {
    PlaceLayers(request, std::move(group.blocks), candidate);
    return;
  }
  group.slots = std::min(ring_size, static_cast<int>(group.blocks.size()));
  group.cycling = group.blocks;
  candidate.ring_size = group.slots;
  std::vector<SlotGroup> groups;
  if (!group.blocks.empty()) groups.push_back(std::move(group));
  PlaceGroups(request, std::move(groups), candidate);
}

// Masters and what else the base needs on the host where it trains.
void CountMasters(const PlanRequest& request, Candidate& candidate) {
  const std::vector<BlockProfile>& blocks = request.model.blocks;
  candidate.num_blocks = blocks.size();
  candidate.mastered = candidate.streamed;
  if (request.base_trains) {
    candidate.mastered.resize(blocks.size());
    std::iota(candidate.mastered.begin(), candidate.mastered.end(), 0);
    candidate.host_state_bytes = request.model.host_state_bytes;
  }
  if (Exchanges(request)) return;  // its buffers are counted with its slots
  for (const int block : candidate.mastered) candidate.host_bytes += blocks[block].bytes;
}

// As much of the plan as its slot layout depends on.
SwapPlan SketchExchange(const PlanRequest& request, const Candidate& candidate) {
  const int num_blocks = static_cast<int>(request.model.blocks.size());
  SwapPlan plan;
  plan.mode = TransferMode::kExchange;
  plan.slots = candidate.slots;
  plan.slot_bytes = candidate.slot_bytes;
  plan.blocks.resize(static_cast<size_t>(num_blocks));
  for (int block : candidate.streamed) plan.blocks[block].residence = Residence::kStreamed;
  const std::vector<ExchangeList>& lists = candidate.exchange_lists;
  plan.training = ExchangeSchedule(PassKind::kTraining, num_blocks, lists, /*micro_batches=*/1);
  plan.forward_only = ExchangeSchedule(PassKind::kForwardOnly, num_blocks, lists, 1);
  return plan;
}

void PlaceExchange(const PlanRequest& request, const std::vector<BlockList>& lists,
                   const std::vector<int>& per_list, Candidate& candidate) {
  const std::vector<BlockProfile>& blocks = request.model.blocks;
  for (size_t i = 0; i < lists.size(); ++i) {
    candidate.exchange_lists.push_back({lists[i].first, lists[i].count, per_list[i]});
    for (int offset = lists[i].count - per_list[i]; offset < lists[i].count; ++offset) {
      candidate.streamed.push_back(lists[i].first + offset);
    }
  }
  const int num_streamed = static_cast<int>(candidate.streamed.size());
  if (num_streamed == 0) {
    for (const BlockProfile& block : blocks) candidate.resident_bytes += block.bytes;
    return;
  }
  candidate.slots = static_cast<int>(blocks.size()) - num_streamed;
  for (const BlockProfile& block : blocks) {
    candidate.slot_bytes = std::max(candidate.slot_bytes, block.bytes);
  }
  const SlotLayout layout = LayoutSlots(SketchExchange(request, candidate), blocks);
  candidate.ring_bytes = layout.slot_bytes();
  candidate.host_bytes = layout.host_bytes();
  if (request.copies_need_pinned_memory) {
    candidate.staging_bytes = kExchangeStagingBuffers * candidate.slot_bytes;
  }
}

}  // namespace

std::vector<BlockList> EffectiveLists(const ModelProfile& model) {
  if (!model.lists.empty()) return model.lists;
  const int count = static_cast<int>(model.blocks.size());
  return {BlockList{.name = "blocks", .first = 0, .count = count, .max_streamed = count}};
}

int MaxBlocksToSwap(const ModelProfile& model, TransferMode mode) {
  const std::vector<BlockList> lists = EffectiveLists(model);
  int capacity = 0;
  for (const BlockList& list : lists) capacity += ListLimit(list, mode);
  if (model.lists.empty() && model.max_blocks_to_swap == 0) return capacity;
  return lists.size() == 1 ? std::min(model.max_blocks_to_swap, capacity)
                           : model.max_blocks_to_swap;
}

int MaxBlocksToSwap(const PlanRequest& request) {
  return MaxBlocksToSwap(request.model,
                         Exchanges(request) ? TransferMode::kExchange : TransferMode::kH2dOnly);
}

std::vector<int> StreamedPerList(const ModelProfile& model, TransferMode mode, int blocks_to_swap) {
  const std::vector<BlockList> lists = EffectiveLists(model);
  std::vector<int> streamed(lists.size(), 0);
  if (blocks_to_swap == 0) return streamed;
  if (lists.size() == 2) {
    // A double block counts one, a single block, half its size, a half.
    const int doubles = blocks_to_swap / 2;
    streamed[0] = std::min(doubles, ListLimit(lists[0], mode));
    streamed[1] = std::min(2 * (blocks_to_swap - doubles) + 1, ListLimit(lists[1], mode));
    return streamed;
  }
  int left = blocks_to_swap;
  for (size_t i = 0; i < lists.size(); ++i) {
    streamed[i] = std::min(left, ListLimit(lists[i], mode));
    left -= streamed[i];
  }
  return streamed;
}

bool Exchanges(const PlanRequest& request) {
  return request.constraints.mode == TransferMode::kExchange && !request.base_trains;
}

bool StreamsLayers(const PlanRequest& request) {
  return request.constraints.granularity == Granularity::kLayer;
}

void SetActivations(const PlanRequest& request, const ActivationChoice& activations,
                    Candidate& candidate) {
  const ModelProfile& model = request.model;
  const ActivationBytes bytes = ActivationPeak(model, request.micro_batches, activations);
  candidate.activations = activations;
  candidate.activation_bytes = bytes.device;
  if (request.base_trains) candidate.activation_bytes += model.gradient_bytes;
  candidate.boundary_host_bytes = bytes.host;
  candidate.device_bytes = candidate.resident_bytes + candidate.ring_bytes + model.edge_bytes +
                           model.adapter_bytes + model.optimizer_bytes + candidate.activation_bytes;
}

Candidate MakeCandidate(const PlanRequest& request, int blocks_to_swap, int ring_size,
                        const ActivationChoice& activations) {
  const ModelProfile& model = request.model;
  Candidate candidate;
  candidate.blocks_to_swap = blocks_to_swap;
  const std::vector<BlockList> lists = EffectiveLists(model);
  const TransferMode mode = Exchanges(request) ? TransferMode::kExchange : TransferMode::kH2dOnly;
  const std::vector<int> per_list = StreamedPerList(model, mode, blocks_to_swap);
  if (mode == TransferMode::kExchange) {
    PlaceExchange(request, lists, per_list, candidate);
    std::sort(candidate.streamed.begin(), candidate.streamed.end());
  } else {
    PlaceRing(request, lists, per_list, ring_size, candidate);
  }
  CountMasters(request, candidate);
  SetActivations(request, activations, candidate);
  return candidate;
}

Candidate MakeGroupCandidate(const PlanRequest& request, std::vector<SlotGroup> groups,
                             const ActivationChoice& activations) {
  Candidate candidate;
  for (const SlotGroup& group : groups) {
    candidate.ring_size = std::max(candidate.ring_size, group.slots);
  }
  PlaceGroups(request, std::move(groups), candidate);
  CountMasters(request, candidate);
  SetActivations(request, activations, candidate);
  return candidate;
}

}  // namespace blockswap::offload
