// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/swap_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "offload/plan/planner.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::HasSubstr;

class ValidatePlanTest : public ::testing::Test {
 protected:
  ValidatePlanTest() {
    PlanRequest request = model_.request();
    request.constraints.blocks_to_swap = 4;
    plan_ = *Plan(request);
  }
  // Breaks a good plan and expects the words in the refusal.
  void ExpectRefused(const std::function<void(SwapPlan&)>& damage, const std::string& words) {
    SwapPlan broken = plan_;
    damage(broken);
    const absl::Status status = ValidatePlan(broken, model_.blocks);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  FakeModel model_ = MakeUniformModel(6, 512);
  SwapPlan plan_;
};

TEST_F(ValidatePlanTest, AcceptsThePlannersPlan) {
  EXPECT_TRUE(ValidatePlan(plan_, model_.blocks).ok());
}

TEST_F(ValidatePlanTest, RefusesWhatCannotBeExecuted) {
  ExpectRefused([](SwapPlan& plan) { plan.blocks.pop_back(); }, "made for 5 blocks");
  ExpectRefused([](SwapPlan& plan) { plan.slots = 0; }, "streamed blocks but 0 slots");
  ExpectRefused([](SwapPlan& plan) { plan.slot_bytes = 256; }, "slots of 256 bytes");
  ExpectRefused([](SwapPlan& plan) { plan.slot_bytes += 1; }, "not a multiple");
  ExpectRefused([](SwapPlan& plan) { plan.training.visits[3] = 6; }, "visits block 6");
  ExpectRefused([](SwapPlan& plan) { plan.training.transfers[0].after_visit = 99; }, "visit 99");
  ExpectRefused(
      [](SwapPlan& plan) {
        std::swap(plan.training.transfers.front(), plan.training.transfers.back());
      },
      "out of order");
  ExpectRefused([](SwapPlan& plan) { plan.training.transfers[0].load = -1; }, "loads block -1");
  ExpectRefused(
      [](SwapPlan& plan) { plan.training.transfers[0].load = plan.training.transfers[0].evict; },
      "not a pair");
  ExpectRefused([](SwapPlan& plan) { plan.forward_only.initial.push_back(0); }, "forward-only");
  ExpectRefused([](SwapPlan& plan) { plan.mode = TransferMode::kExchange; },
                "does not start from the 2 blocks on the device");
  ExpectRefused(
      [](SwapPlan& plan) {
        plan.mode = TransferMode::kExchange;
        plan.slots = 3;
      },
      "exchange with 3 slots");
}

TEST_F(ValidatePlanTest, RefusesATensorOutsideItsBlock) {
  model_.blocks[2].tensors[0].offset = 256;
  EXPECT_THAT(std::string(ValidatePlan(plan_, model_.blocks).message()),
              HasSubstr("tensor 0 of block 2"));
}

TEST(SwapPlanTest, CountsAndNamesWhatIsStreamed) {
  SwapPlan plan;
  plan.blocks.resize(4);
  plan.blocks[1].residence = Residence::kStreamed;
  plan.blocks[3].residence = Residence::kStreamed;
  EXPECT_EQ(plan.num_streamed(), 2);
  EXPECT_EQ(plan.streamed_blocks(), (std::vector<int>{1, 3}));
}

TEST(SwapPlanTest, NamesAreTheOnesUsersWrite) {
  EXPECT_EQ(ResidenceName(Residence::kStreamed), "streamed");
  EXPECT_EQ(HostTierName(HostTier::kPageable), "pageable");
  EXPECT_EQ(TransferModeName(TransferMode::kH2dOnly), "h2d_only");
  EXPECT_EQ(TransferModeName(TransferMode::kExchange), "exchange");
  EXPECT_EQ(PinPolicyName(PinPolicy::kRequired), "required");
}

TEST(SlotSizesTest, SlotsOfDifferentSizesTakeOnlyTheirOwnBlocks) {
  std::vector<BlockProfile> blocks(4);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].bytes = i < 2 ? 512 : 256;
  SwapPlan plan;
  plan.blocks.assign(4, {Residence::kStreamed});
  plan.slots = 2;
  plan.slot_bytes = 512;
  plan.slot_sizes = {256, 512};
  plan.training.visits = {0, 1, 2, 3, 3, 2, 1, 0};
  plan.training.initial = {0, 2};
  plan.training.transfers = {{0, 1, 0}, {2, 3, 2}};
  EXPECT_TRUE(ValidatePlan(plan, blocks).ok()) << ValidatePlan(plan, blocks);
  SwapPlan mixed = plan;
  mixed.training.transfers = {{0, 2, 0}};
  EXPECT_THAT(std::string(ValidatePlan(mixed, blocks).message()),
              ::testing::HasSubstr("their slots have different sizes"));
  SwapPlan crowded = plan;
  crowded.training.initial = {0, 1};
  EXPECT_THAT(std::string(ValidatePlan(crowded, blocks).message()),
              ::testing::HasSubstr("more blocks than slots of 512 bytes"));
  SwapPlan uncounted = plan;
  uncounted.slot_sizes = {512};
  EXPECT_FALSE(ValidatePlan(uncounted, blocks).ok());
}

}  // namespace
}  // namespace blockswap::offload
