// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/slot_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "offload/plan/planner.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// `doubles` blocks of 1024 bytes, then `singles` of 512, as two lists.
PlanRequest TwoLists(int doubles, int singles) {
  PlanRequest request = MakeUniformModel(doubles + singles, 512).request();
  for (int block = 0; block < doubles; ++block) {
    request.model.blocks[static_cast<size_t>(block)].bytes = 1024;
  }
  request.model.lists = {{"double_blocks", 0, doubles, doubles - 1},
                         {"single_blocks", doubles, singles, singles - 1}};
  request.model.max_blocks_to_swap = doubles + singles / 2 - 2;
  return request;
}

TEST(LayoutSlotsTest, RingSlotsAreAllAlikeAndMastersExact) {
  PlanRequest request = TwoLists(4, 6);
  request.constraints.blocks_to_swap = 2;  // 1 double, 3 singles
  const SwapPlan plan = *Plan(request);
  const SlotLayout layout = LayoutSlots(plan, request.model.blocks);
  EXPECT_THAT(layout.slots, ElementsAre(1024, 1024));
  EXPECT_THAT(layout.host_buffers, ElementsAre(1024, 512, 512, 512));
  EXPECT_THAT(layout.capacity_of, ElementsAre(0, 0, 1024, 0, 0, 1024, 0, 1024, 0, 1024));
}

TEST(LayoutSlotsTest, ListsThatExchangeAmongThemselvesHaveSlotsOfTheirSize) {
  PlanRequest request = TwoLists(4, 6);
  request.constraints.mode = TransferMode::kExchange;
  request.constraints.blocks_to_swap = 2;  // 1 double, 3 singles
  const SwapPlan plan = *Plan(request);
  const SlotLayout layout = LayoutSlots(plan, request.model.blocks);
  EXPECT_THAT(layout.slots, ElementsAre(1024, 1024, 1024, 512, 512, 512));
  EXPECT_THAT(layout.host_buffers, ElementsAre(1024, 512, 512, 512, /*spare=*/512, 512, 1024));
  EXPECT_EQ(plan.prediction.ring_bytes, layout.slot_bytes());
  EXPECT_EQ(plan.prediction.pinned_bytes, layout.host_bytes());
}

TEST(LayoutSlotsTest, BlocksOfManySizesShareSlotsOfTheLargest) {
  PlanRequest request = MakeUniformModel(6, 256).request();
  for (int block = 0; block < 6; ++block) {
    request.model.blocks[static_cast<size_t>(block)].bytes = 256 * (block + 1);
  }
  request.constraints.mode = TransferMode::kExchange;
  request.constraints.blocks_to_swap = 4;
  const SlotLayout layout = LayoutSlots(*Plan(request), request.model.blocks);
  EXPECT_THAT(layout.slots, ElementsAre(1536, 1536));
  EXPECT_EQ(layout.host_buffers, std::vector<int64_t>(/*away and spare=*/4 + 2, 1536));
}

TEST(LayoutSlotsTest, TwoSizesThatExchangeWithEachOtherShareSlots) {
  PlanRequest request = TwoLists(2, 2);
  request.model.lists.clear();  // one list of two sizes
  request.model.max_blocks_to_swap = 0;
  request.constraints.mode = TransferMode::kExchange;
  request.constraints.blocks_to_swap = 1;
  const SlotLayout layout = LayoutSlots(*Plan(request), request.model.blocks);
  EXPECT_THAT(layout.slots, ElementsAre(1024, 1024, 1024));
}

TEST(LayoutSlotsTest, AResidentPlanHasNone) {
  const FakeModel model = MakeUniformModel(3, 256);
  const SlotLayout layout = LayoutSlots(*Plan(model.request()), model.blocks);
  EXPECT_THAT(layout.slots, IsEmpty());
  EXPECT_THAT(layout.host_buffers, IsEmpty());
  EXPECT_EQ(layout.slot_bytes(), 0);
}

TEST(SlotLayoutTest, RingsOfTwoSizesHaveSlotsOfTheirOwn) {
  const std::vector<BlockProfile> blocks = [] {
    std::vector<BlockProfile> some(4);
    for (size_t i = 0; i < some.size(); ++i) some[i].bytes = i < 2 ? 512 : 256;
    return some;
  }();
  SwapPlan plan;
  plan.blocks.assign(4, {Residence::kStreamed});
  plan.slots = 3;
  plan.slot_bytes = 512;
  plan.slot_sizes = {256, 256, 512};
  const SlotLayout layout = LayoutSlots(plan, blocks);
  EXPECT_THAT(layout.capacity_of, ::testing::ElementsAre(512, 512, 256, 256));
  EXPECT_THAT(layout.slots, ::testing::ElementsAre(256, 256, 512));
  EXPECT_EQ(layout.slot_bytes(), 1024);
  EXPECT_EQ(layout.host_bytes(), 2 * 512 + 2 * 256);
}

TEST(SlotLayoutTest, AWindowOfManySlotsNeedsFewStagingBuffers) {
  SwapPlan plan;
  for (const int slots : {0, 1, 3, 40}) {
    plan.slots = slots;
    EXPECT_EQ(NumStagingBuffers(plan), std::min(slots, kMostStagingBuffers));
  }
}

}  // namespace
}  // namespace blockswap::offload
