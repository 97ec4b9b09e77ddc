// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/group_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> Range(int count) {
  std::vector<int> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(TimeLineTest, AlikeBlocksAreSpacedAsByIndex) {
  for (int count = 1; count <= 60; ++count) {
    const TimeLine time(MakeUniformModel(count, 256).request().model);
    for (int streamed = 1; streamed <= count; ++streamed) {
      EXPECT_EQ(time.EvenlySpacedOf(Range(count), streamed), EvenlySpaced(count, streamed))
          << streamed << " of " << count;
    }
  }
}

TEST(TimeLineTest, LongBlocksLieCloserThanShortOnes) {
  ModelProfile model = MakeUniformModel(12, 256).request().model;
  for (int i = 0; i < 4; ++i) model.blocks[static_cast<size_t>(i)].forward_flops *= 4;
  // Four blocks of 4 and eight of 1: the middles of quarters of 24 are in blocks 0, 2, 3 and 9.
  EXPECT_THAT(TimeLine(model).EvenlySpacedOf(Range(12), 4), ElementsAre(0, 2, 3, 9));
}

TEST(DivisionsTest, OneSizeHasOneAndTwoSizesAreAlsoApart) {
  ModelProfile model = MakeUniformModel(5, 256).request().model;
  EXPECT_EQ(Divisions(model).size(), 1u);
  model.blocks[3].bytes = model.blocks[4].bytes = 512;
  const std::vector<Division> divisions = Divisions(model);
  ASSERT_EQ(divisions.size(), 2u);
  EXPECT_THAT(divisions[0], ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
  EXPECT_THAT(divisions[1], ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4)));
}

TEST(DivisionsTest, BlocksOutsideTheListsNeverStream) {
  ModelProfile model = MakeUniformModel(5, 256).request().model;
  model.lists = {{"blocks", 1, 3, 3}};
  model.max_blocks_to_swap = 3;
  EXPECT_THAT(Divisions(model)[0][0], ElementsAre(1, 2, 3));
  EXPECT_EQ(MostAway(model, {1, 2, 3}), 2);
  model.lists[0].max_streamed = 0;
  EXPECT_THAT(Divisions(model), IsEmpty());
}

TEST(BuildGroupTest, ARingHasItsSlotsMoreThanAreAway) {
  const TimeLine time(MakeUniformModel(10, 256).request().model);
  EXPECT_FALSE(BuildGroup(time, Range(10), 0, 2).has_value());
  const SlotGroup ring = *BuildGroup(time, Range(10), 3, 2);
  EXPECT_EQ(ring.blocks, EvenlySpaced(10, 5));
  EXPECT_EQ(ring.slots, 2);
  // No more slots than there are blocks for.
  const SlotGroup all = *BuildGroup(time, Range(10), 9, 4);
  EXPECT_EQ(all.blocks.size(), 10u);
  EXPECT_EQ(all.slots, 1);
}

TEST(BuildGroupTest, AWindowLeavesTheMiddleAloneWhereItCan) {
  const TimeLine time(MakeUniformModel(10, 256).request().model);
  const SlotGroup narrow = *BuildGroup(time, Range(10), 3, kWindow);
  EXPECT_THAT(narrow.blocks, ElementsAre(0, 1, 2, 7, 8, 9));
  EXPECT_EQ(narrow.slots, 3);
  const SlotGroup wide = *BuildGroup(time, Range(10), 6, kWindow);
  EXPECT_EQ(wide.blocks.size(), 10u);
  EXPECT_EQ(wide.slots, 4);
}

}  // namespace
}  // namespace blockswap::offload
