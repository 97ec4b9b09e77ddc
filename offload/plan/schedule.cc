// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/schedule.h"

#include <algorithm>
#include <iterator>

namespace blockswap::offload {
namespace {

void SortByVisit(std::vector<Transfer>& transfers) {
  std::stable_sort(transfers.begin(), transfers.end(), [](const Transfer& a, const Transfer& b) {
    return a.after_visit < b.after_visit;
  });
}

// Forward visits of micro-batch m start at `forward`, its backward visits at forward + num_blocks,
// in reverse.
void AppendTrainingRing(int forward, int num_blocks, const std::vector<int>& streamed,
                        int ring_size, std::vector<Transfer>& transfers) {
  const int num_streamed = static_cast<int>(streamed.size());
  const int last_backward = forward + 2 * num_blocks - 1;
  for (int rank = 0; rank + ring_size < num_streamed; ++rank) {
    transfers.push_back({.after_visit = forward + streamed[rank],
                         .load = streamed[rank + ring_size],
                         .evict = streamed[rank]});
  }
  for (int rank = num_streamed - 1; rank >= ring_size; --rank) {
    transfers.push_back({.after_visit = last_backward - streamed[rank],
                         .load = streamed[rank - ring_size],
                         .evict = streamed[rank]});
  }
}

void AppendForwardOnlyRing(const std::vector<int>& streamed, int ring_size,
                           std::vector<Transfer>& transfers) {
  const int num_streamed = static_cast<int>(streamed.size());
  if (ring_size >= num_streamed) return;
  for (int rank = 0; rank < num_streamed; ++rank) {
    transfers.push_back({.after_visit = streamed[rank],
                         .load = streamed[(rank + ring_size) % num_streamed],
                         .evict = streamed[rank]});
  }
}

void AppendTrainingExchange(int forward, int num_blocks, const ExchangeList& list,
                            std::vector<Transfer>& transfers) {
  const int slots = list.count - list.streamed;
  const int last_backward = forward + 2 * num_blocks - 1;
  for (int i = 0; i < list.streamed; ++i) {
    const int block = list.first + i;
    transfers.push_back({.after_visit = forward + block, .load = block + slots, .evict = block});
  }
  for (int i = list.count - 1; i >= slots; --i) {
    const int block = list.first + i;
    transfers.push_back(
        {.after_visit = last_backward - block, .load = block - slots, .evict = block});
  }
}

void AppendForwardOnlyExchange(const ExchangeList& list, std::vector<Transfer>& transfers) {
  const int slots = list.count - list.streamed;
  const bool wraps = 2 * list.streamed >= list.count;
  for (int i = 0; i < list.count; ++i) {
    // Without wrapping the middle stays, and the tail swaps the head back in for the next pass.
    if (!wraps && i >= list.streamed && i < slots) continue;
    const int partner = !wraps && i >= slots ? i - slots : (i + slots) % list.count;
    transfers.push_back(
        {.after_visit = list.first + i, .load = list.first + partner, .evict = list.first + i});
  }
}

}  // namespace

std::vector<int> Visits(PassKind kind, int num_blocks, int micro_batches) {
  std::vector<int> visits;
  const int repeats = kind == PassKind::kTraining ? micro_batches : 1;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (int block = 0; block < num_blocks; ++block) visits.push_back(block);
    if (kind == PassKind::kForwardOnly) continue;
    for (int block = num_blocks - 1; block >= 0; --block) visits.push_back(block);
  }
  return visits;
}

TransferSchedule RingSchedule(PassKind kind, int num_blocks, const std::vector<int>& streamed,
                              int ring_size, int micro_batches) {
  TransferSchedule schedule;
  schedule.visits = Visits(kind, num_blocks, micro_batches);
  if (streamed.empty()) return schedule;
  schedule.initial.assign(streamed.begin(), streamed.begin() + ring_size);
  if (kind == PassKind::kForwardOnly) {
    AppendForwardOnlyRing(streamed, ring_size, schedule.transfers);
  } else {
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      AppendTrainingRing(2 * num_blocks * micro_batch, num_blocks, streamed, ring_size,
                         schedule.transfers);
    }
  }
  SortByVisit(schedule.transfers);
  return schedule;
}

TransferSchedule GroupSchedule(PassKind kind, int num_blocks, const std::vector<SlotGroup>& groups,
                               int micro_batches) {
  TransferSchedule schedule;
  schedule.visits = Visits(kind, num_blocks, micro_batches);
  for (const SlotGroup& group : groups) {
    const bool forward_only = kind == PassKind::kForwardOnly;
    const std::vector<int>& moving = forward_only ? group.cycling : group.blocks;
    const int fixed = static_cast<int>(group.blocks.size() - moving.size());
    if (moving.empty()) {
      schedule.initial.insert(schedule.initial.end(), group.blocks.begin(), group.blocks.end());
      continue;
    }
    const TransferSchedule ring =
        RingSchedule(kind, num_blocks, moving, group.slots - fixed, micro_batches);
    schedule.transfers.insert(schedule.transfers.end(), ring.transfers.begin(),
                              ring.transfers.end());
    schedule.initial.insert(schedule.initial.end(), ring.initial.begin(), ring.initial.end());
    std::set_difference(group.blocks.begin(), group.blocks.end(), moving.begin(), moving.end(),
                        std::back_inserter(schedule.initial));
  }
  std::sort(schedule.initial.begin(), schedule.initial.end());
  SortByVisit(schedule.transfers);
  return schedule;
}

TransferSchedule ExchangeSchedule(PassKind kind, int num_blocks,
                                  const std::vector<ExchangeList>& lists, int micro_batches) {
  TransferSchedule schedule;
  schedule.visits = Visits(kind, num_blocks, micro_batches);
  std::vector<bool> away(static_cast<size_t>(num_blocks), false);
  for (const ExchangeList& list : lists) {
    for (int i = list.count - list.streamed; i < list.count; ++i) {
      away[static_cast<size_t>(list.first + i)] = true;
    }
    if (list.streamed == 0) continue;
    if (kind == PassKind::kForwardOnly) {
      AppendForwardOnlyExchange(list, schedule.transfers);
      continue;
    }
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      AppendTrainingExchange(2 * num_blocks * micro_batch, num_blocks, list, schedule.transfers);
    }
  }
  for (int block = 0; block < num_blocks; ++block) {
    if (!away[static_cast<size_t>(block)]) schedule.initial.push_back(block);
  }
  SortByVisit(schedule.transfers);
  return schedule;
}

}  // namespace blockswap::offload
