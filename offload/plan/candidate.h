// SPDX-License-Identifier: Apache-2.0
// One setting the planner tries: how many blocks stream and over how many slots, and what that
// costs.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_CANDIDATE_H_
#define BLOCKSWAP_OFFLOAD_PLAN_CANDIDATE_H_

#include <cstdint>
#include <vector>

#include "offload/plan/activation_bytes.h"
#include "offload/plan/planner.h"
#include "offload/plan/schedule.h"

namespace blockswap::offload {

// The model's lists, or one list of all blocks when it names none.
std::vector<BlockList> EffectiveLists(const ModelProfile& model);

// The largest blocks_to_swap `mode` can execute, in the user's numbering. Exchange keeps at least
// one block of each list that takes part on the device.
int MaxBlocksToSwap(const ModelProfile& model, TransferMode mode);
int MaxBlocksToSwap(const PlanRequest& request);

// How many blocks of each list are away for the user's `blocks_to_swap` (facts/musubi.md 1.3), in
// EffectiveLists' order.
std::vector<int> StreamedPerList(const ModelProfile& model, TransferMode mode, int blocks_to_swap);

// Whether blocks go back to the host when others take their slots. Trained weights never do: their
// gradients go down.
bool Exchanges(const PlanRequest& request);

// Whether what streams moves one linear at a time, through a window instead of slots.
bool StreamsLayers(const PlanRequest& request);

// A setting with its placement. Times are not filled in here.
struct Candidate {
  int blocks_to_swap = 0;
  int ring_size = 0;  // as asked, clamped to the number of streamed blocks; 0 in exchange mode and
                      // when nothing streams
  size_t num_blocks = 0;
  std::vector<int> streamed;      // ascending
  std::vector<int> mastered;      // blocks with a host copy of their own, ascending
  std::vector<SlotGroup> groups;  // h2d_only
  // Of one micro-batch, where some transfers of the groups wait for others; no visits: none does.
  TransferSchedule training;
  std::vector<ExchangeList> exchange_lists;
  ActivationChoice activations;
  int slots = 0;
  int64_t slot_bytes = 0;           // of the largest slot
  std::vector<int64_t> slot_sizes;  // where they differ
  int64_t ring_bytes = 0;           // of all slots, or of the window of layers
  int64_t resident_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t host_bytes = 0;           // masters, or exchange buffers
  int64_t host_state_bytes = 0;     // optimizer state of a base that trains
  int64_t boundary_host_bytes = 0;  // saved inputs that wait on the host
  int64_t staging_bytes = 0;        // pinned buffers that pageable masters pass through, at most
  int64_t read_buffer_bytes = 0;    // that blocks read from their file pass through, at most
  int64_t device_bytes = 0;         // everything
};

// The placement of the user's number: evenly spaced by index in each list, one ring for all.
Candidate MakeCandidate(const PlanRequest& request, int blocks_to_swap, int ring_size,
                        const ActivationChoice& activations = {});

// A placement over groups of slots; blocks outside the groups are resident. Each group's slots are
// as large as its largest block.
Candidate MakeGroupCandidate(const PlanRequest& request, std::vector<SlotGroup> groups,
                             const ActivationChoice& activations);

// Fills in `activations` and what it takes of the device and the host.
void SetActivations(const PlanRequest& request, const ActivationChoice& activations,
                    Candidate& candidate);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_CANDIDATE_H_
