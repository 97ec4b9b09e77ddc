// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/few_blocks.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "offload/plan/candidate.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

ModelProfile BlocksOf(const std::vector<int64_t>& units) {
  ModelProfile model;
  for (const int64_t unit : units) {
    BlockProfile block;
    block.bytes = unit * kTensorAlignment;
    block.tensors = {{0, block.bytes}};
    model.blocks.push_back(block);
  }
  return model;
}

std::vector<std::vector<SlotGroup>> All(const ModelProfile& model, int64_t units, double seconds) {
  const std::vector<double> h2d(model.blocks.size(), 1.0);
  FewBlocks few(model, units * kTensorAlignment, h2d);
  std::vector<std::vector<SlotGroup>> all;
  few.ForEach([&] { return seconds; },
              [&](const std::vector<SlotGroup>& groups) {
                all.push_back(groups);
                return true;
              });
  return all;
}

constexpr double kAnySeconds = std::numeric_limits<double>::infinity();

TEST(FewBlocksTest, TriesEverySetThatFitsWithSlotsThatFillTheMemory) {
  std::set<std::vector<int>> sets;
  for (const std::vector<SlotGroup>& groups : All(BlocksOf({1, 1, 1}), 2, kAnySeconds)) {
    ASSERT_EQ(groups.size(), 1u);
    EXPECT_EQ(groups[0].slots, groups[0].blocks.size() == 3 ? 2 : 1);
    sets.insert(groups[0].blocks);
  }
  EXPECT_EQ(sets, (std::set<std::vector<int>>{{0, 1}, {0, 2}, {1, 2}, {0, 1, 2}}));
}

TEST(FewBlocksTest, DividesSizesInEveryWayThatFits) {
  std::set<size_t> divisions;
  for (const std::vector<SlotGroup>& groups : All(BlocksOf({1, 1, 2, 2}), 3, kAnySeconds)) {
    divisions.insert(groups.size());
  }
  EXPECT_EQ(divisions, (std::set<size_t>{1, 2}));
}

TEST(FewBlocksTest, LoadsThatTakeTooLongAreNotTried) {
  const ModelProfile model = BlocksOf({1, 1, 1});
  EXPECT_TRUE(All(model, 2, /*seconds=*/2.0).empty());  // one load each way: exactly two
  EXPECT_FALSE(All(model, 2, /*seconds=*/2.5).empty());
}

TEST(FewBlocksTest, EveryWayIsAScheduleThatClosesWithinTheMemory) {
  const ModelProfile model = BlocksOf({3, 1, 2, 5, 4});
  const std::vector<std::vector<SlotGroup>> all = All(model, 12, kAnySeconds);
  EXPECT_GT(all.size(), 20u);
  for (const std::vector<SlotGroup>& groups : all) {
    PlanRequest request;
    request.model = model;
    const Candidate candidate = MakeGroupCandidate(request, groups, {});
    EXPECT_LE(candidate.device_bytes, 12 * kTensorAlignment);
    for (const SlotGroup& group : groups) {
      EXPECT_TRUE(LeavingSchedule(5, group).has_value());
    }
  }
}

TEST(FewBlocksTest, BlocksThatMayNotStreamStay) {
  ModelProfile model = BlocksOf({1, 1, 1, 1});
  model.lists = {{"head", 0, 1, 0}, {"blocks", 1, 3, 3}};
  for (const std::vector<SlotGroup>& groups : All(model, 3, kAnySeconds)) {
    EXPECT_NE(groups[0].blocks.front(), 0);
  }
}

TEST(FewBlocksTest, StopsWhenItIsTold) {
  const ModelProfile model = BlocksOf({1, 2, 3, 4});
  const std::vector<double> h2d(4, 1.0);
  FewBlocks few(model, 6 * kTensorAlignment, h2d);
  int attempts = 0;
  few.ForEach([] { return kAnySeconds; },
              [&](const std::vector<SlotGroup>&) { return ++attempts < 3; });
  EXPECT_EQ(attempts, 3);
}

TEST(FewBlocksTest, ManyBlocksAreNotTried) {
  EXPECT_TRUE(All(BlocksOf(std::vector<int64_t>(8, 1)), 4, kAnySeconds).empty());
}

}  // namespace
}  // namespace blockswap::offload
