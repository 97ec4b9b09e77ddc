// SPDX-License-Identifier: Apache-2.0
// One setting the planner tries: how many blocks stream and over how many slots, and what that
// costs.
#ifndef BLOCKSWAP_OFFLOAD_PLAN_CANDIDATE_H_
#define BLOCKSWAP_OFFLOAD_PLAN_CANDIDATE_H_

#include <cstdint>
#include <vector>

#include "offload/plan/planner.h"
#include "offload/plan/schedule.h"

namespace blockswap::offload {

// The model's lists, or one list of all blocks when it names none.
std::vector<BlockList> EffectiveLists(const ModelProfile& model);

// The largest blocks_to_swap `mode` can execute, in the user's numbering. Exchange keeps at least
// one block of each list that takes part on the device.
int MaxBlocksToSwap(const ModelProfile& model, TransferMode mode);

// How many blocks of each list are away for the user's `blocks_to_swap` (facts/musubi.md 1.3), in
// EffectiveLists' order.
std::vector<int> StreamedPerList(const ModelProfile& model, TransferMode mode, int blocks_to_swap);

// A setting with its placement. Times are not filled in here.
struct Candidate {
  int blocks_to_swap = 0;
  int ring_size = 0;  // as asked, clamped to the number of streamed blocks; 0 in exchange mode and
                      // when nothing streams
  std::vector<int> streamed;
  std::vector<ExchangeList> exchange_lists;
  int slots = 0;
  int64_t slot_bytes = 0;  // of the largest slot
  int64_t ring_bytes = 0;  // of all slots
  int64_t resident_bytes = 0;
  int64_t host_bytes = 0;     // masters, or exchange buffers
  int64_t staging_bytes = 0;  // pinned buffers that pageable masters pass through, at most
  int64_t device_bytes = 0;   // everything
};

Candidate MakeCandidate(const PlanRequest& request, int blocks_to_swap, int ring_size);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_PLAN_CANDIDATE_H_
