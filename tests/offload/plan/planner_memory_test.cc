// SPDX-License-Identifier: Apache-2.0
// What the planner does with memory besides streaming blocks: what it keeps, what it moves to the
// host, what it puts together, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/plan/placement_search.h"
#include "offload/plan/planner.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/naive_swapper.h"

namespace blockswap::offload {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int64_t kBlock = 4096;

// Ten blocks of a second each, with inputs of 512 bytes, that keep 2048.
PlanRequest TenBlocks() {
  PlanRequest request = MakeUniformModel(10, kBlock).request();
  for (BlockProfile& block : request.model.blocks) block.kept_activation_bytes = 2048;
  request.model.boundary_bytes = 5120;
  request.model.block_activation_bytes = 3000;
  request.model.backward_over_forward = 3;
  return request;
}

PlanRequest Timed(PlanRequest request, double copy_seconds) {
  request.compute_flops_per_second = request.model.forward_flops / 10;
  request.link.h2d_bytes_per_second = static_cast<double>(kBlock) / copy_seconds;
  return request;
}

int64_t NumKeeping(const SwapPlan& plan) {
  return std::count_if(plan.blocks.begin(), plan.blocks.end(),
                       [](const BlockPlacement& block) { return block.keeps_activations; });
}

TEST(KeptActivationsTest, SpareMemoryKeepsAsManyBlocksAsItHolds) {
  PlanRequest request = TenBlocks();
  const int64_t resident = 10 * kBlock + 5120 + 3000;
  for (const int keeping : {0, 1, 5, 9}) {
    request.constraints.vram_budget_bytes = resident + keeping * 2048;
    const absl::StatusOr<SwapPlan> plan = Plan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->num_streamed(), 0);
    // The last block's own share is within its peak.
    EXPECT_EQ(NumKeeping(*plan), keeping + 1);
    EXPECT_LE(plan->prediction.device_bytes, *request.constraints.vram_budget_bytes);
  }
}

TEST(KeptActivationsTest, KeepingAllSavesTheRecompute) {
  PlanRequest request = Timed(TenBlocks(), 0.1);
  request.constraints.vram_budget_bytes = int64_t{1} << 20;
  EXPECT_EQ(absl::ToDoubleSeconds(Plan(request)->prediction.step), 30);
  request.constraints.checkpointing = Toggle::kOn;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  EXPECT_EQ(NumKeeping(*plan), 0);
  EXPECT_EQ(absl::ToDoubleSeconds(plan->prediction.step), 40);
}

TEST(KeptActivationsTest, WithoutALimitThatIsKnownNothingIsKept) {
  EXPECT_EQ(NumKeeping(*Plan(TenBlocks())), 0);
}

// Copies that hide cost nothing: the memory of more residents is better spent on keeping.
TEST(KeptActivationsTest, AreWorthMoreThanResidentsWhereCopiesHide) {
  PlanRequest request = Timed(TenBlocks(), 0.01);
  request.constraints.vram_budget_bytes = 10 * kBlock + 5120 + 3000;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->num_streamed(), 0);
  EXPECT_GT(NumKeeping(*plan), 1);
  for (const BlockPlacement& block : plan->blocks) {
    EXPECT_FALSE(block.keeps_activations && block.residence == Residence::kStreamed);
  }
  EXPECT_LT(absl::ToDoubleSeconds(plan->prediction.step), 39);
  EXPECT_THAT(plan->notes, Contains(HasSubstr("keep their activations")));
}

TEST(CheckpointingOffTest, KeepsEveryBlockOrRefusesNamingBothSettings) {
  PlanRequest request = TenBlocks();
  request.constraints.checkpointing = Toggle::kOff;
  EXPECT_EQ(NumKeeping(*Plan(request)), 10);
  request.constraints.blocks_to_swap = 3;
  EXPECT_THAT(std::string(Plan(request).status().message()),
              AllOf(HasSubstr("checkpointing off"), HasSubstr("blocks_to_swap is 3")));
  request.constraints.blocks_to_swap = 0;
  request.constraints.vram_budget_bytes = 11 * kBlock;
  const absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  // Inputs, nine kept beside the last block's peak.
  const int64_t needed = 10 * kBlock + 5120 + 9 * 2048 + 3000;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("checkpointing off"), HasSubstr(absl::StrCat(needed, " bytes")),
                    HasSubstr(absl::StrCat(11 * kBlock, " bytes"))));
  request.constraints.vram_budget_bytes = needed;
  EXPECT_TRUE(Plan(request).ok());
}

TEST(ActivationOffloadTest, IsChosenOnlyWhenNothingElseFitsAndForAsFewBlocksAsThat) {
  PlanRequest request = TenBlocks();
  request.may_offload_inputs = true;
  const int64_t least = kBlock + 5120 + 3000;  // everything streamed over one slot
  request.constraints.vram_budget_bytes = least;
  const absl::StatusOr<SwapPlan> without = Plan(request);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->prediction.boundary_host_bytes, 0);
  request.constraints.vram_budget_bytes = least - 2 * 512;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LE(plan->prediction.device_bytes, least - 2 * 512);
  // The last one to leave is still there.
  EXPECT_EQ(plan->prediction.boundary_host_bytes, 3 * 512);
  EXPECT_EQ(plan->prediction.pinned_bytes, 10 * kBlock + 3 * 512);
  EXPECT_TRUE(plan->blocks[2].offloads_boundary);
  EXPECT_FALSE(plan->blocks[3].offloads_boundary);
  EXPECT_EQ(plan->prediction.d2h_bytes_per_step, 3 * 512);
  EXPECT_THAT(plan->notes, Contains(HasSubstr("the inputs of 3 blocks wait on the host")));
  request.constraints.activation_offload = Toggle::kOff;
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kFailedPrecondition);
}

// What leaves the device makes room for resident blocks, which may save more than it costs.
TEST(ActivationOffloadTest, IsNeverMuchSlowerThanMovingEveryInput) {
  int compared = 0;
  for (const double copy : {1.0, 3.0, 6.0}) {
    for (int64_t blocks = 3; blocks < 12; ++blocks) {
      PlanRequest request = Timed(TenBlocks(), copy);
      request.may_offload_inputs = true;
      request.model.boundary_bytes = 5 * kBlock;
      request.constraints.vram_budget_bytes = blocks * kBlock + 3000;
      const absl::StatusOr<SwapPlan> plan = Plan(request);
      if (!plan.ok() || plan->prediction.boundary_host_bytes == 0) continue;
      request.constraints.activation_offload = Toggle::kOn;
      const absl::StatusOr<SwapPlan> all = Plan(request);
      ASSERT_TRUE(all.ok()) << all.status();
      ++compared;
      EXPECT_LE(plan->prediction.step, all->prediction.step * (1 + kWorthwhileGain))
          << blocks << " blocks of memory, copy " << copy;
    }
  }
  EXPECT_GT(compared, 0);
}

TEST(ActivationOffloadTest, OnMovesEveryInput) {
  PlanRequest request = TenBlocks();
  request.constraints.activation_offload = Toggle::kOn;
  request.micro_batches = 3;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.boundary_host_bytes, 5120);
  EXPECT_EQ(plan->prediction.d2h_bytes_per_step, 3 * 5120);
  EXPECT_EQ(plan->prediction.activation_bytes, 2 * 512 + 3000);
}

TEST(BlockMajorTest, IsChosenWhereOneUploadForAllMicroBatchesSavesTime) {
  PlanRequest request = Timed(TenBlocks(), 6.0);  // a copy takes longer than its compute
  request.micro_batches = 4;
  request.model.boundary_bytes = 520;
  request.constraints.checkpointing = Toggle::kOn;
  request.constraints.vram_budget_bytes = 5 * kBlock + 520 + 3000;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->block_major);
  EXPECT_EQ(plan->training.visits.size(), 20u);
  EXPECT_LE(plan->prediction.device_bytes, *request.constraints.vram_budget_bytes);
  EXPECT_EQ(absl::ToDoubleSeconds(plan->prediction.compute), 4 * 40);
  EXPECT_THAT(plan->notes, Contains(HasSubstr("4 micro-batches")));
  // Where copies hide there is nothing to save, and the inputs of all at once cost memory.
  const absl::StatusOr<SwapPlan> hidden = Plan(Timed(request, 0.01));
  ASSERT_TRUE(hidden.ok()) << hidden.status();
  EXPECT_FALSE(hidden->block_major);
  EXPECT_EQ(hidden->training.visits.size(), 80u);
  request.micro_batches = 1;
  EXPECT_FALSE(Plan(request)->block_major);
}

TEST(ContradictionsTest, AreAnsweredOnceWithBothSettings) {
  PlanRequest request = TenBlocks();
  request.base_trains = true;
  absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("memory.mode h2d_only"), HasSubstr("network.type none"),
                    HasSubstr("memory.mode: exchange")));
  request.base_trains = false;
  request.constraints.checkpointing = Toggle::kOff;
  request.constraints.activation_offload = Toggle::kOn;
  refused = Plan(request).status();
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("checkpointing off"), HasSubstr("activation_offload on")));
}

TEST(ContradictionsTest, ARingWithoutStreamedBlocksIsSaidToDoNothing) {
  PlanRequest request = TenBlocks();
  request.constraints.ring_size = 4;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->slots, 0);
  EXPECT_THAT(plan->notes, Contains(HasSubstr("ring_size 4 has no effect")));
}

TEST(ContradictionsTest, AFixedCountThatDoesNotFitNamesTheNearestThatDoes) {
  PlanRequest request = TenBlocks();
  request.constraints.vram_budget_bytes = 6 * kBlock + 5120 + 3000;
  request.constraints.blocks_to_swap = 3;
  const absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("blocks_to_swap 6 and ring_size 2"), HasSubstr("needed"),
                    HasSubstr("available"), HasSubstr("vram_budget")));
}

TEST(HeadroomTest, APlanThatTakesAllThatIsFreeSaysSo) {
  PlanRequest request = TenBlocks();
  request.constraints.checkpointing = Toggle::kOn;
  const int64_t needed = 10 * kBlock + 5120 + 3000;
  request.device_free_bytes = needed + 100;
  EXPECT_THAT(Plan(request)->notes,
              Contains(HasSubstr("fits only while nothing else takes memory")));
  request.device_free_bytes = 2 * needed;
  EXPECT_THAT(Plan(request)->notes, ::testing::IsEmpty());
  request.device_free_bytes = needed + 100;
  request.constraints.vram_budget_bytes = needed;
  EXPECT_THAT(Plan(request)->notes, ::testing::IsEmpty()) << "the user chose the budget";
}

// F086: what a sampling pass uses is what the training step uses, and it leaves nothing behind.
TEST(ForwardOnlyTest, APassLivesInTheSlotsOfTheTrainingStep) {
  for (const double copy_seconds : {0.1, 1.0, 4.0}) {
    PlanRequest request = Timed(TenBlocks(), copy_seconds);
    request.constraints.vram_budget_bytes = 6 * kBlock + 5120 + 3000;
    const absl::StatusOr<SwapPlan> plan = Plan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LE(plan->forward_only.initial.size(), static_cast<size_t>(plan->slots));
    const NaiveCycle pass = RunByHand(*plan, plan->forward_only);
    EXPECT_FALSE(pass.overflowed);
    EXPECT_EQ(pass.absent, 0);
    EXPECT_EQ(pass.final_blocks,
              std::set<int>(plan->forward_only.initial.begin(), plan->forward_only.initial.end()));
  }
}

}  // namespace
}  // namespace blockswap::offload
