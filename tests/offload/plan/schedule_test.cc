// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/plan/planner.h"
#include "tests/fakes/naive_swapper.h"

namespace blockswap::offload {
namespace {

using ::testing::ElementsAre;

SwapPlan RingPlan(int num_blocks, const std::vector<int>& streamed, int ring_size) {
  SwapPlan plan;
  plan.blocks.resize(static_cast<size_t>(num_blocks));
  for (int block : streamed)
    plan.blocks[static_cast<size_t>(block)].residence = Residence::kStreamed;
  plan.slots = ring_size;
  return plan;
}

SwapPlan ExchangePlan(int num_blocks, int streamed) {
  SwapPlan plan = RingPlan(num_blocks, {}, num_blocks - streamed);
  plan.mode = TransferMode::kExchange;
  return plan;
}

// The fewest loads that let `slots` slots serve one cycle of `visits` and start it again from the
// same blocks, by trying every choice of victims. Exponential: six streamed blocks at most.
int FewestLoads(const std::vector<int>& visits, const std::set<int>& start) {
  std::map<std::set<int>, int> reachable = {{start, 0}};
  for (int block : visits) {
    std::map<std::set<int>, int> next;
    const auto offer = [&](const std::set<int>& slots, int loads) {
      const auto [it, fresh] = next.emplace(slots, loads);
      if (!fresh) it->second = std::min(it->second, loads);
    };
    for (const auto& [slots, loads] : reachable) {
      if (slots.count(block) != 0) {
        offer(slots, loads);
        continue;
      }
      for (int victim : slots) {
        std::set<int> changed = slots;
        changed.erase(victim);
        changed.insert(block);
        offer(changed, loads + 1);
      }
    }
    reachable = next;
  }
  int best = 1 << 20;
  for (const auto& [slots, loads] : reachable) {
    int missing = 0;
    for (int block : start) missing += slots.count(block) == 0;
    best = std::min(best, loads + missing);
  }
  return best;
}

std::vector<int> OnlyStreamed(const std::vector<int>& visits, const std::vector<int>& streamed) {
  std::vector<int> kept;
  for (int block : visits) {
    if (std::count(streamed.begin(), streamed.end(), block) != 0) kept.push_back(block);
  }
  return kept;
}

TEST(VisitsTest, ATrainingStepGoesForwardThenBackwardForEachMicroBatch) {
  EXPECT_THAT(Visits(PassKind::kTraining, 2, 2), ElementsAre(0, 1, 1, 0, 0, 1, 1, 0));
  EXPECT_THAT(Visits(PassKind::kForwardOnly, 3, 2), ElementsAre(0, 1, 2));
}

TEST(RingScheduleTest, EveryVisitFindsItsBlockAndACycleEndsWhereItStarted) {
  for (int num_blocks = 1; num_blocks <= 12; ++num_blocks) {
    for (int count = 1; count <= num_blocks; ++count) {
      const std::vector<int> streamed = EvenlySpaced(num_blocks, count);
      for (int ring_size = 1; ring_size <= count; ++ring_size) {
        const SwapPlan plan = RingPlan(num_blocks, streamed, ring_size);
        for (const PassKind kind : {PassKind::kTraining, PassKind::kForwardOnly}) {
          for (int micro_batches = 1; micro_batches <= 3; ++micro_batches) {
            SCOPED_TRACE(absl::StrCat("N=", num_blocks, " S=", count, " R=", ring_size, " forward=",
                                      kind == PassKind::kForwardOnly, " micro=", micro_batches));
            const TransferSchedule schedule =
                RingSchedule(kind, num_blocks, streamed, ring_size, micro_batches);
            const NaiveCycle cycle = RunByHand(plan, schedule);
            EXPECT_EQ(cycle.absent, 0);
            EXPECT_EQ(cycle.impossible, 0);
            EXPECT_FALSE(cycle.overflowed);
            EXPECT_EQ(cycle.final_blocks,
                      std::set<int>(schedule.initial.begin(), schedule.initial.end()));
            const int loads = kind == PassKind::kTraining
                                  ? (2 * count - 2 * ring_size) * micro_batches
                              : ring_size == count ? 0
                                                   : count;
            EXPECT_EQ(cycle.loads, loads);
          }
        }
      }
    }
  }
}

TEST(RingScheduleTest, NoScheduleTrainsWithFewerLoads) {
  for (int num_blocks = 1; num_blocks <= 6; ++num_blocks) {
    for (int count = 1; count <= num_blocks; ++count) {
      const std::vector<int> streamed = EvenlySpaced(num_blocks, count);
      for (int ring_size = 1; ring_size <= count; ++ring_size) {
        for (int micro_batches = 1; micro_batches <= 2; ++micro_batches) {
          const TransferSchedule schedule =
              RingSchedule(PassKind::kTraining, num_blocks, streamed, ring_size, micro_batches);
          EXPECT_EQ(static_cast<int>(schedule.transfers.size()),
                    FewestLoads(OnlyStreamed(schedule.visits, streamed),
                                std::set<int>(schedule.initial.begin(), schedule.initial.end())))
              << "N=" << num_blocks << " S=" << count << " R=" << ring_size;
        }
      }
    }
  }
}

TEST(RingScheduleTest, NothingIsFlushedAtTheTurnOrTheStepBoundary) {
  const TransferSchedule schedule = RingSchedule(PassKind::kTraining, 8, {1, 3, 5, 7}, 2, 1);
  EXPECT_THAT(schedule.initial, ElementsAre(1, 3));
  EXPECT_THAT(schedule.transfers, ElementsAre(Transfer{1, 5, 1}, Transfer{3, 7, 3},
                                              Transfer{8, 3, 7}, Transfer{10, 1, 5}));
}

TEST(RingScheduleTest, WithoutStreamedBlocksNothingMoves) {
  const TransferSchedule schedule = RingSchedule(PassKind::kTraining, 3, {}, 2, 1);
  EXPECT_TRUE(schedule.transfers.empty());
  EXPECT_TRUE(schedule.initial.empty());
  EXPECT_EQ(schedule.visits.size(), 6u);
}

TEST(GroupScheduleTest, GroupsKeepToTheirOwnSlotsAndShareOneOrder) {
  const std::vector<SlotGroup> groups = {{{0, 1, 2}, 1, {0, 1, 2}},
                                         {{4, 5, 6, 7}, 2, {4, 5, 6, 7}}};
  SwapPlan plan = RingPlan(8, {0, 1, 2, 4, 5, 6, 7}, 3);
  for (const PassKind kind : {PassKind::kTraining, PassKind::kForwardOnly}) {
    const TransferSchedule schedule = GroupSchedule(kind, 8, groups, 2);
    EXPECT_THAT(schedule.initial, ElementsAre(0, 4, 5));
    for (const Transfer& transfer : schedule.transfers) {
      EXPECT_EQ(transfer.load < 3, transfer.evict < 3);
    }
    EXPECT_TRUE(std::is_sorted(
        schedule.transfers.begin(), schedule.transfers.end(),
        [](const Transfer& a, const Transfer& b) { return a.after_visit < b.after_visit; }));
    const NaiveCycle cycle = RunByHand(plan, schedule);
    EXPECT_EQ(cycle.absent, 0);
    EXPECT_EQ(cycle.impossible, 0);
    EXPECT_EQ(cycle.final_blocks, (std::set<int>{0, 4, 5}));
  }
}

TEST(GroupScheduleTest, AForwardOnlyPassLeavesBlocksThatDoNotCycleInPlace) {
  const std::vector<SlotGroup> groups = {{{0, 1, 2, 3, 4, 5}, 4, {1, 3, 5}}};
  const TransferSchedule schedule = GroupSchedule(PassKind::kForwardOnly, 6, groups, 1);
  EXPECT_THAT(schedule.initial, ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(schedule.transfers,
              ElementsAre(Transfer{1, 3, 1}, Transfer{3, 5, 3}, Transfer{5, 1, 5}));
  // The training step moves them all, with as few loads as four slots allow.
  EXPECT_EQ(GroupSchedule(PassKind::kTraining, 6, groups, 1).transfers.size(), 4u);
}

TEST(ExchangeScheduleTest, EveryVisitFindsItsBlockAndACycleEndsWhereItStarted) {
  for (int num_blocks = 2; num_blocks <= 12; ++num_blocks) {
    for (int streamed = 1; streamed < num_blocks; ++streamed) {
      const SwapPlan plan = ExchangePlan(num_blocks, streamed);
      for (const PassKind kind : {PassKind::kTraining, PassKind::kForwardOnly}) {
        for (int micro_batches = 1; micro_batches <= 2; ++micro_batches) {
          SCOPED_TRACE(absl::StrCat("N=", num_blocks, " S=", streamed,
                                    " forward=", kind == PassKind::kForwardOnly));
          const TransferSchedule schedule =
              ExchangeSchedule(kind, num_blocks, {{0, num_blocks, streamed}}, micro_batches);
          const NaiveCycle cycle = RunByHand(plan, schedule);
          EXPECT_EQ(cycle.absent, 0);
          EXPECT_EQ(cycle.impossible, 0);
          EXPECT_FALSE(cycle.overflowed);
          EXPECT_EQ(cycle.final_blocks,
                    std::set<int>(schedule.initial.begin(), schedule.initial.end()));
          const int forward_only = 2 * streamed < num_blocks ? 2 * streamed : num_blocks;
          EXPECT_EQ(cycle.loads,
                    kind == PassKind::kTraining ? 2 * streamed * micro_batches : forward_only);
        }
      }
    }
  }
}

TEST(ExchangeScheduleTest, ListsExchangeAmongThemselvesOnly) {
  // 4 double blocks of which 2 are away, 6 single ones of which 3 are.
  const std::vector<ExchangeList> lists = {{0, 4, 2}, {4, 6, 3}};
  SwapPlan plan = ExchangePlan(10, 5);
  for (const PassKind kind : {PassKind::kTraining, PassKind::kForwardOnly}) {
    const TransferSchedule schedule = ExchangeSchedule(kind, 10, lists, 1);
    EXPECT_THAT(schedule.initial, ElementsAre(0, 1, 4, 5, 6));
    for (const Transfer& transfer : schedule.transfers) {
      EXPECT_EQ(transfer.load < 4, transfer.evict < 4);
    }
    const NaiveCycle cycle = RunByHand(plan, schedule);
    EXPECT_EQ(cycle.absent, 0);
    EXPECT_EQ(cycle.impossible, 0);
    EXPECT_EQ(cycle.final_blocks, (std::set<int>{0, 1, 4, 5, 6}));
  }
}

TEST(ExchangeScheduleTest, AForwardOnlyPassOfFewBlocksSwapsBackAtTheTail) {
  const TransferSchedule schedule =
      ExchangeSchedule(PassKind::kForwardOnly, 7, {{0, 7, 2}}, /*micro_batches=*/1);
  EXPECT_THAT(schedule.transfers, ElementsAre(Transfer{0, 5, 0}, Transfer{1, 6, 1},
                                              Transfer{5, 0, 5}, Transfer{6, 1, 6}));
}

// One cycle of `schedule` over `slots` slots, by hand: every visit finds its block, the end is the
// start.
void ExpectRuns(const TransferSchedule& schedule, int num_blocks, const std::vector<int>& streamed,
                int slots) {
  const NaiveCycle cycle = RunByHand(RingPlan(num_blocks, streamed, slots), schedule);
  EXPECT_EQ(cycle.absent, 0);
  EXPECT_EQ(cycle.impossible, 0);
  EXPECT_EQ(cycle.final_blocks, std::set<int>(schedule.initial.begin(), schedule.initial.end()));
}

TEST(LeavingScheduleTest, TheLeavingBlocksOfARingGiveTheRing) {
  const SlotGroup group{.blocks = {0, 1, 2, 3},
                        .slots = 2,
                        .cycling = {},
                        .leave_forward = {0, 1},
                        .leave_backward = {2, 3}};
  EXPECT_EQ(LeavingSchedule(4, group), RingSchedule(PassKind::kTraining, 4, group.blocks, 2, 1));
}

TEST(LeavingScheduleTest, ABlockMayMoveTwiceInAPass) {
  const SlotGroup group{.blocks = {0, 1, 2, 3},
                        .slots = 2,
                        .cycling = {},
                        .leave_forward = {0, 1},
                        .leave_backward = {1, 2, 3}};
  const std::optional<TransferSchedule> schedule = LeavingSchedule(4, group);
  ASSERT_TRUE(schedule.has_value());
  EXPECT_EQ(schedule->transfers.size(), 5u);
  ExpectRuns(*schedule, 4, group.blocks, 2);
}

TEST(LeavingScheduleTest, TooFewThatLeaveAreNoSchedule) {
  const SlotGroup group{.blocks = {0, 1, 2, 3},
                        .slots = 2,
                        .cycling = {},
                        .leave_forward = {0},
                        .leave_backward = {3}};
  EXPECT_FALSE(LeavingSchedule(4, group).has_value());
}

TEST(RepeatScheduleTest, EveryMicroBatchMovesTheSame) {
  const TransferSchedule once = RingSchedule(PassKind::kTraining, 4, {0, 1, 2, 3}, 2, 1);
  EXPECT_EQ(RepeatSchedule(once, 3), RingSchedule(PassKind::kTraining, 4, {0, 1, 2, 3}, 2, 3));
}

TEST(DelayTransferTest, TheOneBehindItComesFirst) {
  const TransferSchedule ring = RingSchedule(PassKind::kTraining, 6, {0, 1, 4, 5}, 2, 1);
  const std::optional<TransferSchedule> delayed = DelayTransfer(ring, 0, 1);
  ASSERT_TRUE(delayed.has_value());
  EXPECT_THAT(delayed->transfers, ElementsAre(Transfer{1, 5, 1}, Transfer{1, 4, 0},
                                              Transfer{6, 1, 5}, Transfer{7, 0, 4}));
  ExpectRuns(*delayed, 6, {0, 1, 4, 5}, 2);
}

TEST(DelayTransferTest, NotPastTheVisitThatNeedsIt) {
  const TransferSchedule ring = RingSchedule(PassKind::kTraining, 4, {0, 1, 2, 3}, 1, 1);
  EXPECT_EQ(DelayTransfer(ring, 0, 1), std::nullopt);
  EXPECT_EQ(DelayTransfer(ring, ring.transfers.size() - 1, 1), std::nullopt);
}

TEST(SwapLoadsTest, EachComesForTheOther) {
  const TransferSchedule ring = RingSchedule(PassKind::kTraining, 6, {0, 1, 4, 5}, 2, 1);
  const std::optional<TransferSchedule> swapped = SwapLoads(ring, 0, 1);
  ASSERT_TRUE(swapped.has_value());
  EXPECT_THAT(swapped->transfers, ElementsAre(Transfer{0, 5, 0}, Transfer{1, 4, 1},
                                              Transfer{6, 1, 5}, Transfer{7, 0, 4}));
  ExpectRuns(*swapped, 6, {0, 1, 4, 5}, 2);
}

// The other block is on the device from the start, where that takes no slot more.
TEST(SwapLoadsTest, NeverNeedsAnotherSlot) {
  const TransferSchedule ring = RingSchedule(PassKind::kTraining, 5, {0, 1, 2, 3, 4}, 2, 1);
  int swaps = 0;
  for (size_t i = 0; i < ring.transfers.size(); ++i) {
    for (size_t j = i + 1; j < ring.transfers.size(); ++j) {
      const std::optional<TransferSchedule> swapped = SwapLoads(ring, i, j);
      if (!swapped.has_value()) continue;
      ++swaps;
      EXPECT_EQ(swapped->initial.size(), ring.initial.size());
      ExpectRuns(*swapped, 5, {0, 1, 2, 3, 4}, 2);
    }
  }
  EXPECT_GT(swaps, 0);
}

}  // namespace
}  // namespace blockswap::offload
