// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/layer_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/fakes/fake_model.h"
#include "tests/fakes/fake_plan.h"

namespace blockswap::offload {
namespace {

TEST(LayerScheduleTest, WhatIsInTheWindowAtATurnIsNotLoadedAgain) {
  std::mt19937_64 random(5);
  const FakeModel model = MakeLayeredModel(random, 6, 5, 4000, /*alike=*/true);
  const std::vector<int> all = {0, 1, 2, 3, 4, 5};
  const SwapPlan plan = MakeLayerPlan(model.blocks, all);
  EXPECT_LT(plan.window.training.loads.size(), plan.window.training.visits.size());
  EXPECT_TRUE(ValidatePlan(plan, model.blocks).ok()) << ValidatePlan(plan, model.blocks);
}

TEST(LayerScheduleTest, ACycleTakesNoLessThanItsBusiestLaneAndNoMoreThanBothInTurn) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 60; ++round) {
    const FakeModel model = MakeLayeredModel(random, 1 + round % 7, 6, 4000, round % 2 == 0);
    std::vector<int> streamed;
    for (int block = 0; block < static_cast<int>(model.blocks.size()); block += 1 + round % 3) {
      streamed.push_back(block);
    }
    const SwapPlan plan = MakeLayerPlan(model.blocks, streamed);
    LayerWindowRequest request{.blocks = &model.blocks,
                               .streamed = streamed,
                               .training_visits = plan.training.visits,
                               .forward_only_visits = plan.forward_only.visits,
                               .costs = {}};
    for (const PassKind kind : {PassKind::kTraining, PassKind::kForwardOnly}) {
      const CycleTimes times = SimulateLayerCycle(plan.window, kind, request);
      EXPECT_GE(times.cycle * (1 + 1e-9), std::max(times.compute, times.copy));
      EXPECT_LE(times.cycle, (times.compute + times.copy) * (1 + 1e-9));
      EXPECT_NEAR(times.copy, static_cast<double>(LayerCycleBytes(plan.window, kind, model.blocks)),
                  1.0);
    }
  }
}

// Where computing takes much longer than copying, everything but the first copy hides.
TEST(LayerScheduleTest, CopiesHideBehindCompute) {
  std::mt19937_64 random(2);
  const FakeModel model = MakeLayeredModel(random, 5, 6, 4000, /*alike=*/true);
  const SwapPlan visits = MakeLayerPlan(model.blocks, {0, 1, 2, 3, 4});
  const double bytes = static_cast<double>(model.blocks[0].bytes);
  LayerWindowRequest request{.blocks = &model.blocks,
                             .streamed = {0, 1, 2, 3, 4},
                             .training_visits = visits.training.visits,
                             .forward_only_visits = visits.forward_only.visits,
                             .costs = {}};
  request.costs.forward.assign(5, 40 * bytes);
  request.costs.backward.assign(5, 120 * bytes);
  request.costs.h2d.assign(5, bytes);
  const LayerWindow window = PlanLayerWindow(request);
  const CycleTimes times = SimulateLayerCycle(window, PassKind::kTraining, request);
  EXPECT_LT(times.stall, 0.02 * times.compute);
}

TEST(LayerScheduleTest, RestKeepsTensorsOfNoLayer) {
  BlockProfile block;
  block.tensors = {{0, 100}, {256, 300}, {768, 10}, {1024, 700}};
  block.layers = {{{1, 2}, 256, 768}};
  const RestLayout rest = LayoutRest(block);
  EXPECT_EQ(rest.offset_of, (std::vector<int64_t>{0, -1, -1, 256}));
  EXPECT_EQ(rest.bytes, 256 + 768);
}

TEST(LayerScheduleTest, AWindowThatCannotBeExecutedIsRefused) {
  std::mt19937_64 random(4);
  const FakeModel model = MakeLayeredModel(random, 4, 5, 2000, /*alike=*/false);
  const SwapPlan good = MakeLayerPlan(model.blocks, {0, 2});
  ASSERT_TRUE(ValidatePlan(good, model.blocks).ok());
  SwapPlan bad = good;
  bad.window.bytes = 256;
  EXPECT_FALSE(ValidatePlan(bad, model.blocks).ok());
  bad = good;
  bad.window.training.initial.push_back({0, good.window.bytes});
  EXPECT_FALSE(ValidatePlan(bad, model.blocks).ok());
  bad = good;
  bad.window.units.pop_back();
  EXPECT_FALSE(ValidatePlan(bad, model.blocks).ok());
  bad = good;
  bad.base_trains = true;
  EXPECT_FALSE(ValidatePlan(bad, model.blocks).ok());
  bad = good;
  bad.blocks[2].tier = HostTier::kFile;
  EXPECT_FALSE(ValidatePlan(bad, model.blocks).ok());
  std::vector<BlockProfile> without = model.blocks;
  without[2].layers.clear();
  EXPECT_FALSE(ValidatePlan(good, without).ok());
}

// The planner's side: what it says is what the swapper takes.
TEST(LayerPlanTest, LayersFitABudgetThatWholeBlocksDoNot) {
  std::mt19937_64 random(8);
  const FakeModel model = MakeLayeredModel(random, 8, 6, 4000, /*alike=*/true);
  PlanRequest request = model.request();
  request.constraints.granularity = Granularity::kLayer;
  request.constraints.blocks_to_swap = 8;
  request.compute_flops_per_second = 1e6;
  request.link.h2d_bytes_per_second = 1e6;
  const absl::StatusOr<SwapPlan> least = Plan(request);
  ASSERT_TRUE(least.ok()) << least.status();
  EXPECT_EQ(least->granularity, Granularity::kLayer);
  EXPECT_EQ(least->slots, 0);
  EXPECT_EQ(least->prediction.ring_bytes, least->window.bytes);
  EXPECT_EQ(least->prediction.resident_bytes, 8 * LayoutRest(model.blocks[0]).bytes);
  EXPECT_EQ(least->prediction.h2d_bytes_per_step,
            LayerCycleBytes(least->window, PassKind::kTraining, model.blocks));
  EXPECT_GE(least->prediction.step, least->prediction.bound);
  EXPECT_GT(least->prediction.bound, absl::ZeroDuration());

  request.constraints.blocks_to_swap.reset();
  request.constraints.vram_budget_bytes = least->prediction.device_bytes;
  const absl::StatusOr<SwapPlan> fitted = Plan(request);
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_LE(fitted->prediction.device_bytes, *request.constraints.vram_budget_bytes);
  request.constraints.granularity = Granularity::kBlock;
  request.constraints.ring_size = 1;
  if (least->prediction.device_bytes < model.blocks[0].bytes) {
    EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(LayerPlanTest, WhatCannotBeStreamedByLayerIsRefusedWithTheSettingToChange) {
  std::mt19937_64 random(8);
  FakeModel model = MakeLayeredModel(random, 4, 6, 4000, /*alike=*/true);
  PlanRequest request = model.request();
  request.constraints.granularity = Granularity::kLayer;
  request.constraints.blocks_to_swap = 2;
  request.constraints.mode = TransferMode::kExchange;
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kInvalidArgument);
  request.constraints.mode = TransferMode::kH2dOnly;
  for (BlockProfile& block : request.model.blocks) block.layers.clear();
  const absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(refused.message()).find("granularity: block"), std::string::npos);
}

}  // namespace
}  // namespace blockswap::offload
