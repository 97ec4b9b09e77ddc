// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/placement_search.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "offload/plan/block_costs.h"
#include "offload/plan/few_blocks.h"
#include "offload/plan/host_tiers.h"
#include "offload/plan/kept_activations.h"

namespace blockswap::offload {
namespace {

// Of blocks, in all simulations of each phase: planning must not take a second.
constexpr int kMostVisits = 200000;
constexpr int kRingSizes[] = {2, 1, 3, 4, 6, 8, 12, 16, 24, kWindow};
constexpr int kMostForwardSlots = 8;
// Models of up to this many blocks are searched beyond the next neighbours.
constexpr size_t kSmallModel = 12;
constexpr size_t kMostDelay = 2;  // transfers that one waits for
// More than another order of loads gains: what is slower by as much is not looked at.
constexpr double kOrderGain = 0.05;
constexpr double kGain = 1 - 1e-7;
constexpr int kAsNumbered = -1;  // the division of the user's numbering
constexpr int kOfFewBlocks = -2;

bool IsStreamed(const SlotGroup& group, int block) {
  return std::binary_search(group.blocks.begin(), group.blocks.end(), block);
}

bool IsStreamed(const std::vector<SlotGroup>& groups, int block) {
  return std::any_of(groups.begin(), groups.end(),
                     [block](const SlotGroup& group) { return IsStreamed(group, block); });
}

BlockCosts CostsOf(const PlanRequest& request, const Budgets& budgets, const Candidate& candidate) {
  return MakeCosts(request, AssignTiers(request, budgets, candidate).tier_of,
                   candidate.activations);
}

// A block goes into the smallest slots that hold it, which must be those of its group.
bool SizesAreApart(const std::vector<BlockProfile>& blocks, const std::vector<SlotGroup>& groups) {
  const auto bytes = [&blocks](int block) { return blocks[static_cast<size_t>(block)].bytes; };
  std::vector<std::pair<int64_t, int64_t>> ranges;  // the smallest block and the largest
  for (const SlotGroup& group : groups) {
    const auto [least, most] =
        std::minmax_element(group.blocks.begin(), group.blocks.end(),
                            [&](int a, int b) { return bytes(a) < bytes(b); });
    ranges.emplace_back(bytes(*least), bytes(*most));
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first <= ranges[i - 1].second) return false;
  }
  return true;
}

bool ShareSlots(const std::vector<SlotGroup>& groups, const Transfer& a, const Transfer& b) {
  return std::any_of(groups.begin(), groups.end(), [&](const SlotGroup& group) {
    return IsStreamed(group, a.load) && IsStreamed(group, b.load);
  });
}

SlotGroup Replaced(SlotGroup group, size_t index, int block) {
  group.blocks[index] = block;
  std::sort(group.blocks.begin(), group.blocks.end());
  group.cycling = group.blocks;
  return group;
}

// Ties are broken the same way every time.
bool IsFaster(const TimedPlacement& a, const TimedPlacement& b) {
  return std::tuple(a.step_seconds, a.division, a.ring_size) <
         std::tuple(b.step_seconds, b.division, b.ring_size);
}

int ListOf(const std::vector<BlockList>& lists, int block) {
  for (size_t i = 0; i < lists.size(); ++i) {
    if (block >= lists[i].first && block < lists[i].first + lists[i].count) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace

PlacementSearch::PlacementSearch(const PlanRequest& request, const Budgets& budgets,
                                 const ActivationChoice& activations)
    : request_(request),
      budgets_(budgets),
      activations_(activations),
      time_(request.model),
      lists_(EffectiveLists(request.model)),
      most_simulations_(kMostVisits / static_cast<int>(request.model.blocks.size())),
      simulations_left_(most_simulations_) {}

std::optional<TimedPlacement> PlacementSearch::Time(std::vector<SlotGroup> groups) {
  if (!SizesAreApart(request_.model.blocks, groups)) return std::nullopt;
  TimedPlacement placement;
  placement.candidate = MakeGroupCandidate(request_, std::move(groups), activations_);
  Candidate& candidate = placement.candidate;
  if (!Fits(candidate, budgets_) || !CheckPinning(request_, candidate).ok()) return std::nullopt;
  KeepActivations(request_, budgets_, candidate);
  --simulations_left_;
  const TransferSchedule schedule =
      GroupSchedule(PassKind::kTraining, static_cast<int>(candidate.num_blocks), candidate.groups,
                    /*micro_batches=*/1);
  const CycleTimes times = SimulateCycle(schedule, PassKind::kTraining, TransferMode::kH2dOnly,
                                         CostsOf(request_, budgets_, candidate));
  placement.step_seconds = times.cycle * Repeats();
  placement.compute_seconds = times.compute * Repeats();
  return placement;
}

double PlacementSearch::Repeats() const {
  return activations_.block_major ? 1 : request_.micro_batches;
}

void PlacementSearch::ReorderLoads(TimedPlacement& placement) {
  Candidate& candidate = placement.candidate;
  const bool few = candidate.num_blocks <= kFewBlocks;
  if (candidate.groups.size() < 2 && !few) return;
  const BlockCosts costs = CostsOf(request_, budgets_, candidate);
  TransferSchedule best = GroupSchedule(PassKind::kTraining, static_cast<int>(candidate.num_blocks),
                                        candidate.groups, 1);
  bool improved = true;
  const auto consider = [&](std::optional<TransferSchedule> changed) {
    if (!changed.has_value() || simulations_left_ <= 0) return;
    --simulations_left_;
    const double seconds =
        Repeats() *
        SimulateCycle(*changed, PassKind::kTraining, TransferMode::kH2dOnly, costs).cycle;
    if (seconds >= placement.step_seconds * kGain) return;
    placement.step_seconds = seconds;
    candidate.training = best = *std::move(changed);
    improved = true;
  };
  while (improved) {
    improved = false;
    for (size_t index = 0; index < best.transfers.size(); ++index) {
      for (size_t later = 1; later <= kMostDelay; ++later) {
        consider(DelayTransfer(best, index, later));
      }
      for (size_t other = few ? index + 1 : best.transfers.size(); other < best.transfers.size();
           ++other) {
        if (!ShareSlots(candidate.groups, best.transfers[index], best.transfers[other])) continue;
        consider(SwapLoads(best, index, other));
      }
    }
  }
}

void PlacementSearch::Keep(TimedPlacement placement) {
  for (TimedPlacement& other : found_) {
    if (other.ring_size != placement.ring_size || other.division != placement.division) continue;
    if (placement.step_seconds < other.step_seconds * kGain) other = std::move(placement);
    return;
  }
  found_.push_back(std::move(placement));
}

void PlacementSearch::TryAway(const Division& division, size_t set,
                              std::vector<SlotGroup>& groups) {
  const std::vector<int>& members = division[set];
  const int most = MostAway(request_.model, members);
  const bool last = set + 1 == division.size();
  // Fewer residents leave room to keep activations, which may gain more.
  int deeper = MayKeepActivations(request_) ? (division.size() == 1 ? most : 4) : 0;
  for (int away = 0; away <= most && simulations_left_ > 0; ++away) {
    const std::optional<SlotGroup> group = BuildGroup(time_, members, away, ring_size_);
    if (group.has_value()) groups.push_back(*group);
    bool enough = false;
    if (last) {
      std::optional<TimedPlacement> placement = Time(groups);
      if (placement.has_value()) {
        placement->ring_size = ring_size_;
        placement->division = division_;
        Keep(*std::move(placement));
        enough = deeper-- == 0;
      }
    } else {
      TryAway(division, set + 1, groups);
    }
    if (group.has_value()) groups.pop_back();
    if (enough) return;
  }
}

bool PlacementSearch::MoveOne(TimedPlacement& placement, size_t group, size_t index,
                              bool within_lists) {
  const std::vector<SlotGroup>& groups = placement.candidate.groups;
  const int block = groups[group].blocks[index];
  const int num_blocks = static_cast<int>(placement.candidate.num_blocks);
  const bool small = placement.candidate.num_blocks <= kSmallModel;
  const int list = ListOf(lists_, block);
  for (const int step : {1, -1}) {
    for (int other = block + step; other >= 0 && other < num_blocks; other += step) {
      if (IsStreamed(groups, other)) continue;
      const int other_list = ListOf(lists_, other);
      if (other_list < 0 || (within_lists && other_list != list)) continue;
      std::vector<SlotGroup> changed = groups;
      changed[group] = Replaced(std::move(changed[group]), index, other);
      if (Accept(std::move(changed), placement)) return true;
      if (!small || simulations_left_ <= 0) break;
    }
  }
  return false;
}

bool PlacementSearch::Accept(std::vector<SlotGroup> groups, TimedPlacement& placement) {
  groups.erase(std::remove_if(groups.begin(), groups.end(),
                              [](const SlotGroup& group) { return group.slots < 1; }),
               groups.end());
  std::optional<TimedPlacement> next = Time(std::move(groups));
  if (!next.has_value() || next->step_seconds >= placement.step_seconds * kGain) return false;
  next->ring_size = placement.ring_size;
  next->division = placement.division;
  placement = *std::move(next);
  return true;
}

bool PlacementSearch::ResizeOne(TimedPlacement& placement, size_t group) {
  const std::vector<SlotGroup>& groups = placement.candidate.groups;
  const auto with = [&](SlotGroup changed, int slots) {
    std::vector<SlotGroup> all = groups;
    changed.slots += slots;
    changed.cycling = changed.blocks;
    if (changed.slots > static_cast<int>(changed.blocks.size())) changed.slots = 0;
    all[group] = std::move(changed);
    return all;
  };
  const SlotGroup own = groups[group];
  if (Accept(with(own, 1), placement)) return true;
  for (size_t i = 0; i < own.blocks.size(); ++i) {
    SlotGroup fewer = own;
    fewer.blocks.erase(fewer.blocks.begin() + static_cast<std::ptrdiff_t>(i));
    if (Accept(with(fewer, -1), placement) || Accept(with(fewer, 0), placement)) return true;
    if (simulations_left_ <= 0) return false;
  }
  for (int block = 0; block < static_cast<int>(placement.candidate.num_blocks); ++block) {
    if (IsStreamed(groups, block) || ListOf(lists_, block) < 0) continue;
    SlotGroup more = own;
    more.blocks.insert(std::lower_bound(more.blocks.begin(), more.blocks.end(), block), block);
    if (Accept(with(more, 1), placement) || Accept(with(more, 0), placement)) return true;
    if (simulations_left_ <= 0) return false;
  }
  return false;
}

void PlacementSearch::MoveBlocks(TimedPlacement& placement, bool is_fixed, bool within_lists) {
  bool moved = true;
  while (moved && simulations_left_ > 0 &&
         placement.step_seconds * kGain > placement.compute_seconds) {
    moved = false;
    for (size_t group = 0; group < placement.candidate.groups.size(); ++group) {
      if (!is_fixed && ResizeOne(placement, group)) {
        moved = true;
        break;
      }
      for (size_t i = 0; i < placement.candidate.groups[group].blocks.size(); ++i) {
        if (simulations_left_ <= 0) return;
        moved |= MoveOne(placement, group, i, within_lists);
      }
    }
  }
}

void PlacementSearch::TryEverything() {
  const ModelProfile& model = request_.model;
  const std::vector<BlockProfile>& blocks = model.blocks;
  const bool alike = std::all_of(blocks.begin(), blocks.end(), [&](const BlockProfile& block) {
    return block.bytes == blocks[0].bytes;
  });
  // For alike blocks a window is the best there is.
  if (blocks.size() > kFewBlocks || alike) return;
  tried_everything_ = true;
  const Candidate resident = MakeGroupCandidate(request_, {}, activations_);
  const int64_t weight_bytes =
      budgets_.device_bytes == 0
          ? 0
          : budgets_.device_bytes - (resident.device_bytes - resident.resident_bytes);
  const BlockCosts costs = MakeCosts(request_, /*tiers=*/{}, activations_);
  FewBlocks few(model, weight_bytes, costs.h2d);
  if (MayKeepActivations(request_)) few.TrySparing();
  TimedPlacement best = found_.front();
  few.ForEach([&] { return best.step_seconds * kGain / Repeats(); },
              [&](const std::vector<SlotGroup>& groups) {
                std::optional<TimedPlacement> next = Time(groups);
                if (!next.has_value()) return simulations_left_ > 0;
                if (next->step_seconds < best.step_seconds * (1 + kOrderGain)) ReorderLoads(*next);
                if (next->step_seconds < best.step_seconds * kGain) {
                  best = *std::move(next);
                  best.ring_size = kWindow;
                  best.division = kOfFewBlocks;
                }
                return simulations_left_ > 0 && best.step_seconds * kGain > best.compute_seconds;
              });
  if (best.division == kOfFewBlocks) Keep(std::move(best));
}

const TimedPlacement& PlacementSearch::Choose() const {
  const TimedPlacement& best = found_.front();
  const TimedPlacement* chosen = &best;
  for (const TimedPlacement& placement : found_) {
    const bool plain = placement.ring_size == kDefaultRingSize;
    // A ring of two is worth a little time, for the masters of others; few blocks have few of them.
    const double allowed =
        best.step_seconds * (plain && !tried_everything_ ? 1 + kWorthwhileGain : 1 / kGain);
    if (placement.step_seconds < allowed &&
        (placement.candidate.host_bytes < chosen->candidate.host_bytes || plain)) {
      chosen = &placement;
      if (plain) break;
    }
  }
  return *chosen;
}

std::optional<TimedPlacement> PlacementSearch::Find(std::optional<int> ring_size,
                                                    const Candidate* plain) {
  found_.clear();
  if (plain != nullptr) {
    std::optional<TimedPlacement> placement = Time(plain->groups);
    if (placement.has_value()) {
      placement->ring_size = plain->groups.empty() ? kDefaultRingSize : plain->ring_size;
      placement->division = kAsNumbered;
      Keep(*std::move(placement));
    }
  }
  const std::vector<Division> divisions = Divisions(request_.model);
  if (divisions.empty()) return Time({});
  std::vector<int> ring_sizes(std::begin(kRingSizes), std::end(kRingSizes));
  if (ring_size.has_value()) ring_sizes = {*ring_size};
  for (division_ = 0; division_ < static_cast<int>(divisions.size()); ++division_) {
    for (const int size : ring_sizes) {
      ring_size_ = size;
      std::vector<SlotGroup> groups;
      TryAway(divisions[static_cast<size_t>(division_)], 0, groups);
    }
  }
  if (found_.empty()) return std::nullopt;
  simulations_left_ = most_simulations_;
  std::sort(found_.begin(), found_.end(), IsFaster);
  for (TimedPlacement& placement : found_) {
    MoveBlocks(placement, /*is_fixed=*/ring_size.has_value(), /*within_lists=*/false);
    ReorderLoads(placement);
  }
  std::sort(found_.begin(), found_.end(), IsFaster);
  if (!ring_size.has_value()) {
    simulations_left_ = most_simulations_;
    TryEverything();
    std::sort(found_.begin(), found_.end(), IsFaster);
  }
  return Choose();
}

TimedPlacement PlacementSearch::Improve(const Candidate& candidate) {
  std::optional<TimedPlacement> placement = Time(candidate.groups);
  if (!placement.has_value()) return {candidate, 0, 0, candidate.ring_size};
  placement->candidate.blocks_to_swap = candidate.blocks_to_swap;
  placement->candidate.ring_size = candidate.ring_size;
  const int blocks_to_swap = candidate.blocks_to_swap;
  const int ring_size = candidate.ring_size;
  MoveBlocks(*placement, /*is_fixed=*/true, /*within_lists=*/true);
  placement->candidate.blocks_to_swap = blocks_to_swap;
  placement->candidate.ring_size = ring_size;
  return *std::move(placement);
}

void ChooseForwardOnly(const PlanRequest& request, const BlockCosts& costs, Candidate& candidate) {
  if (candidate.groups.empty()) return;
  const TimeLine time(request.model);
  const int num_blocks = static_cast<int>(candidate.num_blocks);
  std::vector<SlotGroup> best;
  double best_seconds = 0;
  for (int slots = kMostForwardSlots; slots >= 0; --slots) {
    std::vector<SlotGroup> groups = candidate.groups;
    for (SlotGroup& group : groups) {
      const int away = static_cast<int>(group.blocks.size()) - group.slots;
      // 0 slots: all that they have.
      const int own = slots == 0 ? group.slots : std::min(slots, group.slots);
      group.cycling =
          away == 0 ? std::vector<int>() : time.EvenlySpacedOf(group.blocks, away + own);
    }
    const TransferSchedule schedule =
        GroupSchedule(PassKind::kForwardOnly, num_blocks, groups, /*micro_batches=*/1);
    const double seconds =
        SimulateCycle(schedule, PassKind::kForwardOnly, TransferMode::kH2dOnly, costs).cycle;
    if (best.empty() || seconds < best_seconds * kGain) {
      best_seconds = seconds;
      best = std::move(groups);
    }
  }
  candidate.groups = std::move(best);
}

}  // namespace blockswap::offload
