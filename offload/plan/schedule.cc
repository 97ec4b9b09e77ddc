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

// Sets what is on the device when a cycle of `schedule` starts, and whether every visit then finds
// its block and the cycle ends where it began.
bool FindsItsBlocks(TransferSchedule& schedule) {
  const size_t slots = schedule.initial.size();
  std::vector<bool> moves(schedule.visits.size(), false);  // by block: fewer than visits
  std::vector<bool> in(schedule.visits.size(), true);
  for (const Transfer& transfer : schedule.transfers) {
    // What comes before it leaves was not there.
    for (const int block : {transfer.evict, transfer.load}) {
      if (moves[static_cast<size_t>(block)]) continue;
      moves[static_cast<size_t>(block)] = true;
      in[static_cast<size_t>(block)] = block == transfer.evict;
    }
  }
  const auto fixed =
      std::remove_if(schedule.initial.begin(), schedule.initial.end(),
                     [&moves](int block) { return moves[static_cast<size_t>(block)]; });
  schedule.initial.erase(fixed, schedule.initial.end());
  for (size_t block = 0; block < in.size(); ++block) {
    if (moves[block] && in[block]) schedule.initial.push_back(static_cast<int>(block));
  }
  if (schedule.initial.size() != slots) return false;
  std::sort(schedule.initial.begin(), schedule.initial.end());
  const std::vector<bool> start = in;
  size_t next = 0;
  for (size_t visit = 0; visit < schedule.visits.size(); ++visit) {
    if (!in[static_cast<size_t>(schedule.visits[visit])]) return false;
    for (; next < schedule.transfers.size() &&
           schedule.transfers[next].after_visit == static_cast<int>(visit);
         ++next) {
      const auto [after, load, evict] = schedule.transfers[next];
      if (load == evict || in[static_cast<size_t>(load)] || !in[static_cast<size_t>(evict)]) {
        return false;
      }
      in[static_cast<size_t>(load)] = true;
      in[static_cast<size_t>(evict)] = false;
    }
  }
  return in == start;
}

// Before a cycle that starts where the one before it ended is taken or given up.
constexpr int kMostSettlingCycles = 4;

// One group in the visits of its own blocks: ranks 0..K-1 forward, K-1..0 backward.
class LeavingGroup {
 public:
  LeavingGroup(int num_blocks, const SlotGroup& group)
      : num_blocks_(num_blocks), group_(group), in_(group.blocks.size(), false) {
    for (int visit = 0; visit <= Last(); ++visit) {
      const std::vector<int>& leaving = visit < size() ? group.leave_forward : group.leave_backward;
      leaves_.push_back(std::binary_search(leaving.begin(), leaving.end(),
                                           group.blocks[static_cast<size_t>(RankAt(visit))]));
    }
    int free = group.slots;
    // What stays at the end of a step is there when the next one starts.
    for (const bool staying : {true, false}) {
      for (int rank = 0; rank < size() && free > 0; ++rank) {
        const bool stays = !Leaves(Last() - rank);
        if (stays != staying) continue;
        in_[static_cast<size_t>(rank)] = true;
        --free;
      }
    }
  }

  const std::vector<bool>& in() const { return in_; }

  // Whether every visit found its block.
  bool RunCycle(std::vector<Transfer>& transfers) {
    bool found = true;
    for (int visit = 0; visit <= Last(); ++visit) {
      const int rank = RankAt(visit);
      if (!in_[static_cast<size_t>(rank)]) {
        found = false;
        Replace(NextOf(visit, /*in=*/true, /*soonest=*/false), rank);
      }
      if (!Leaves(visit)) continue;
      const int next = NextOf(visit, /*in=*/false, /*soonest=*/true);
      Replace(rank, next);
      const int block = group_.blocks[static_cast<size_t>(rank)];
      const int after = visit < size() ? block : 2 * num_blocks_ - 1 - block;
      transfers.push_back({after, group_.blocks[static_cast<size_t>(next)], block});
    }
    return found;
  }

 private:
  int size() const { return static_cast<int>(group_.blocks.size()); }
  int Last() const { return 2 * size() - 1; }
  int RankAt(int visit) const { return visit < size() ? visit : Last() - visit; }

  bool Leaves(int visit) const { return leaves_[static_cast<size_t>(visit)]; }

  void Replace(int rank, int by) {
    in_[static_cast<size_t>(rank)] = false;
    in_[static_cast<size_t>(by)] = true;
  }

  // Of the ranks in slots, or out of them, the one whose next visit is soonest, or farthest.
  int NextOf(int visit, bool in, bool soonest) const {
    int next = -1;
    std::vector<bool> seen(in_.size(), false);
    seen[static_cast<size_t>(RankAt(visit))] = true;
    for (int ahead = 1; ahead <= Last(); ++ahead) {
      const int rank = RankAt((visit + ahead) % (Last() + 1));
      if (in_[static_cast<size_t>(rank)] != in || seen[static_cast<size_t>(rank)]) continue;
      if (soonest) return rank;
      seen[static_cast<size_t>(rank)] = true;  // the second of its visits does not count
      next = rank;
    }
    return next;
  }

  const int num_blocks_;
  const SlotGroup& group_;
  std::vector<bool> leaves_;  // by visit
  std::vector<bool> in_;      // a slot, by rank
};

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

std::optional<TransferSchedule> LeavingSchedule(int num_blocks, const SlotGroup& group) {
  TransferSchedule schedule;
  schedule.visits = Visits(PassKind::kTraining, num_blocks, /*micro_batches=*/1);
  LeavingGroup running(num_blocks, group);
  for (int cycle = 0; cycle < kMostSettlingCycles; ++cycle) {
    schedule.transfers.clear();
    const std::vector<bool> start = running.in();
    const bool found = running.RunCycle(schedule.transfers);
    if (!found || running.in() != start) continue;
    for (size_t rank = 0; rank < start.size(); ++rank) {
      if (start[rank]) schedule.initial.push_back(group.blocks[rank]);
    }
    return schedule;
  }
  return std::nullopt;
}

TransferSchedule RepeatSchedule(const TransferSchedule& once, int micro_batches) {
  TransferSchedule schedule;
  schedule.initial = once.initial;
  const int visits = static_cast<int>(once.visits.size());
  for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    schedule.visits.insert(schedule.visits.end(), once.visits.begin(), once.visits.end());
    for (Transfer transfer : once.transfers) {
      transfer.after_visit += visits * micro_batch;
      schedule.transfers.push_back(transfer);
    }
  }
  return schedule;
}

std::optional<TransferSchedule> DelayTransfer(const TransferSchedule& schedule, size_t index,
                                              size_t later) {
  if (index + later >= schedule.transfers.size()) return std::nullopt;
  TransferSchedule delayed = schedule;
  const auto from = delayed.transfers.begin() + static_cast<std::ptrdiff_t>(index);
  std::rotate(from, from + 1, from + 1 + static_cast<std::ptrdiff_t>(later));
  delayed.transfers[index + later].after_visit = schedule.transfers[index + later].after_visit;
  if (!FindsItsBlocks(delayed)) return std::nullopt;
  return delayed;
}

std::optional<TransferSchedule> SwapLoads(const TransferSchedule& schedule, size_t index,
                                          size_t other) {
  TransferSchedule swapped = schedule;
  std::swap(swapped.transfers[index].load, swapped.transfers[other].load);
  if (!FindsItsBlocks(swapped)) return std::nullopt;
  return swapped;
}

TransferSchedule GroupSchedule(PassKind kind, int num_blocks, const std::vector<SlotGroup>& groups,
                               int micro_batches) {
  TransferSchedule schedule;
  schedule.visits = Visits(kind, num_blocks, micro_batches);
  for (const SlotGroup& group : groups) {
    const bool forward_only = kind == PassKind::kForwardOnly;
    if (!forward_only && !group.leave_forward.empty()) {
      const std::optional<TransferSchedule> once = LeavingSchedule(num_blocks, group);
      if (!once.has_value()) continue;
      const TransferSchedule all = RepeatSchedule(*once, micro_batches);
      schedule.transfers.insert(schedule.transfers.end(), all.transfers.begin(),
                                all.transfers.end());
      schedule.initial.insert(schedule.initial.end(), all.initial.begin(), all.initial.end());
      continue;
    }
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
