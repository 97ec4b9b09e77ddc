// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/naive_swapper.h"

namespace blockswap::offload {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBlock = 1024;

// Ten blocks of 1 KiB, 600 bytes of other things.
PlanRequest TenBlocks() {
  PlanRequest request = MakeUniformModel(10, kBlock).request();
  request.model.edge_bytes = 100;
  request.model.adapter_bytes = 50;
  request.model.optimizer_bytes = 100;
  request.model.boundary_bytes = 150;
  request.model.block_activation_bytes = 120;
  request.model.conditioning_bytes = 80;
  return request;
}

TEST(EvenlySpacedTest, FollowsTheMidpointFormula) {
  EXPECT_THAT(EvenlySpaced(10, 3), ElementsAre(1, 5, 8));
  EXPECT_THAT(EvenlySpaced(4, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(EvenlySpaced(7, 0), IsEmpty());
  EXPECT_THAT(EvenlySpaced(1, 1), ElementsAre(0));
}

TEST(EvenlySpacedTest, IndicesAreDistinctAndInRange) {
  for (int count = 1; count <= 130; ++count) {
    for (int streamed = 1; streamed <= count; ++streamed) {
      const std::vector<int> indices = EvenlySpaced(count, streamed);
      EXPECT_EQ(std::set<int>(indices.begin(), indices.end()).size(),
                static_cast<size_t>(streamed));
      EXPECT_GE(indices.front(), 0);
      EXPECT_LT(indices.back(), count);
    }
  }
}

TEST(PlannerTest, AnUnlimitedDeviceKeepsEverythingResident) {
  const absl::StatusOr<SwapPlan> plan = Plan(TenBlocks());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->num_streamed(), 0);
  EXPECT_EQ(plan->slots, 0);
  EXPECT_EQ(plan->prediction.resident_bytes, 10 * kBlock);
  EXPECT_EQ(plan->prediction.device_bytes, 10 * kBlock + 600);
  EXPECT_EQ(plan->prediction.h2d_bytes_per_step, 0);
}

TEST(PlannerTest, ABudgetGetsAsManyResidentsAsFit) {
  PlanRequest request = TenBlocks();
  // Six residents and a ring of two: 4 streamed.
  request.constraints.vram_budget_bytes = 600 + 8 * kBlock + 200;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->num_streamed(), 4);
  EXPECT_EQ(plan->slots, 2);
  EXPECT_THAT(plan->streamed_blocks(), ElementsAre(1, 3, 6, 8));
  EXPECT_EQ(plan->prediction.device_bytes, 600 + 8 * kBlock);
  EXPECT_EQ(plan->prediction.ring_bytes, 2 * kBlock);
  EXPECT_EQ(plan->prediction.h2d_bytes_per_step, (2 * 4 - 2 * 2) * kBlock);
  EXPECT_EQ(plan->prediction.d2h_bytes_per_step, 0);
  EXPECT_EQ(plan->prediction.pinned_bytes, 4 * kBlock);
  EXPECT_EQ(plan->vram_budget_bytes, 600 + 8 * kBlock + 200);
}

TEST(PlannerTest, OneByteLessThanAPlanNeedsStreamsAnotherBlock) {
  PlanRequest request = TenBlocks();
  request.constraints.vram_budget_bytes = 600 + 8 * kBlock - 1;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->num_streamed(), 5);
}

TEST(PlannerTest, TheRingIsLoweredWhenOnlyThatFitsAndThePlanSaysSo) {
  PlanRequest request = TenBlocks();
  request.constraints.vram_budget_bytes = 600 + kBlock;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->num_streamed(), 10);
  EXPECT_EQ(plan->slots, 1);
  EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("ring size lowered from 2 to 1")));
}

TEST(PlannerTest, RefusesABudgetBelowOneBlockAndSaysWhatWouldFit) {
  PlanRequest request = TenBlocks();
  request.constraints.vram_budget_bytes = 600 + kBlock - 1;
  const absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("needed 1.6 KiB (1624 bytes)"),
                    HasSubstr("available 1.6 KiB (1623 bytes)"), HasSubstr("would fit")));
}

TEST(PlannerTest, TheRingIsClampedToTheStreamedBlocks) {
  PlanRequest request = TenBlocks();
  request.constraints.blocks_to_swap = 3;
  request.constraints.ring_size = 8;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->slots, 3);
  EXPECT_TRUE(plan->training.transfers.empty());
}

TEST(PlannerTest, RefusesARingBelowOne) {
  for (const int ring_size : {0, -1, std::numeric_limits<int>::min()}) {
    PlanRequest request = TenBlocks();
    request.constraints.ring_size = ring_size;
    const absl::Status refused = Plan(request).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("ring_size must be at least 1"));
  }
}

// F063: 0, 1, N-2, N-1, N, N+1, -1, 10^9 in both modes.
TEST(PlannerTest, BlocksToSwapOutOfRangeNamesTheMaximum) {
  for (const TransferMode mode : {TransferMode::kH2dOnly, TransferMode::kExchange}) {
    const int maximum = mode == TransferMode::kH2dOnly ? 10 : 9;
    for (const int asked : {0, 1, 8, 9, 10, 11, -1, 1000000000}) {
      PlanRequest request = TenBlocks();
      request.constraints.mode = mode;
      request.constraints.blocks_to_swap = asked;
      const absl::StatusOr<SwapPlan> plan = Plan(request);
      if (asked >= 0 && asked <= maximum) {
        ASSERT_TRUE(plan.ok()) << asked << ": " << plan.status();
        EXPECT_EQ(plan->num_streamed(), asked);
        EXPECT_EQ(plan->blocks_to_swap, asked);
      } else {
        EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << asked;
        EXPECT_THAT(std::string(plan.status().message()),
                    AllOf(HasSubstr(absl::StrCat("between 0 and ", maximum)),
                          HasSubstr(absl::StrCat("got ", asked))));
      }
    }
  }
}

TEST(PlannerTest, TheModelsOwnMaximumBinds) {
  PlanRequest request = TenBlocks();
  request.model.lists = {{"blocks", 0, 10, 8}};
  request.model.max_blocks_to_swap = 8;
  request.constraints.blocks_to_swap = 9;
  EXPECT_THAT(std::string(Plan(request).status().message()), HasSubstr("between 0 and 8"));
  request.constraints.blocks_to_swap.reset();
  request.constraints.vram_budget_bytes = 600 + 3 * kBlock;  // 2 residents and one slot
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->num_streamed(), 8);
}

TEST(PlannerTest, AFixedCountThatDoesNotFitIsRefusedWithOneThatDoes) {
  PlanRequest request = TenBlocks();
  request.constraints.vram_budget_bytes = 600 + 5 * kBlock;
  request.constraints.blocks_to_swap = 3;
  const absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("blocks_to_swap 7 and ring_size 2"));
  request.constraints.blocks_to_swap = 7;
  EXPECT_TRUE(Plan(request).ok());
}

TEST(PlannerTest, ExchangeHasOneSlotForEachBlockThatIsNotAway) {
  PlanRequest request = TenBlocks();
  request.constraints.mode = TransferMode::kExchange;
  request.constraints.vram_budget_bytes = 600 + 7 * kBlock;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->slots, 7);
  EXPECT_THAT(plan->streamed_blocks(), ElementsAre(7, 8, 9));
  EXPECT_EQ(plan->prediction.resident_bytes, 0);
  EXPECT_EQ(plan->prediction.ring_bytes, 7 * kBlock);
  EXPECT_EQ(plan->prediction.pinned_bytes, (3 + 2) * kBlock);  // two spare ones
  EXPECT_EQ(plan->prediction.h2d_bytes_per_step, 6 * kBlock);
  EXPECT_EQ(plan->prediction.d2h_bytes_per_step, 6 * kBlock);
}

TEST(PlannerTest, MicroBatchesRepeatTheCycle) {
  PlanRequest request = TenBlocks();
  request.constraints.blocks_to_swap = 5;
  request.micro_batches = 3;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->training.visits.size(), 60u);
  EXPECT_EQ(plan->prediction.h2d_bytes_per_step, 3 * (2 * 5 - 2 * 2) * kBlock);
  request.micro_batches = 0;
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PlannerTest, PinsAsMuchAsTheLimitAllowsAndSaysWhatIsLeft) {
  PlanRequest request = TenBlocks();
  request.constraints.blocks_to_swap = 5;
  request.lockable_bytes = 3 * kBlock + 10;
  request.copies_need_pinned_memory = true;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.pageable_bytes, 4 * kBlock);
  EXPECT_EQ(plan->prediction.pinned_bytes, kBlock + 2 * kBlock);  // one master, two staging buffers
  EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("stay pageable")));
  EXPECT_EQ(plan->blocks[1].tier, HostTier::kPinned);
  EXPECT_EQ(plan->blocks[9].tier, HostTier::kPageable);
  request.copies_need_pinned_memory = false;  // nothing is staged then
  EXPECT_EQ(Plan(request)->prediction.pinned_bytes, 3 * kBlock);
}

TEST(PlannerTest, RequiredPinningBeyondTheLimitIsRefused) {
  PlanRequest request = TenBlocks();
  request.constraints.blocks_to_swap = 5;
  request.constraints.pin_policy = PinPolicy::kRequired;
  request.lockable_bytes = 5 * kBlock - 1;
  const absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("page-locked host memory"), HasSubstr("5.0 KiB"),
                    HasSubstr("lower blocks_to_swap")));
  request.lockable_bytes = 5 * kBlock;
  EXPECT_TRUE(Plan(request).ok());
}

TEST(PlannerTest, NeverPinningLeavesEverythingPageable) {
  PlanRequest request = TenBlocks();
  request.constraints.blocks_to_swap = 5;
  request.constraints.pin_policy = PinPolicy::kNever;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.pinned_bytes, 0);
  EXPECT_EQ(plan->prediction.pageable_bytes, 5 * kBlock);
}

TEST(PlannerTest, ABudgetAboveWhatIsFreeIsLoweredAndSaysSo) {
  PlanRequest request = TenBlocks();
  request.device_free_bytes = 600 + 8 * kBlock;
  request.constraints.vram_budget_bytes = 600 + 10 * kBlock;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->num_streamed(), 4);
  EXPECT_THAT(plan->notes, ElementsAre(HasSubstr("vram_budget of")));
}

TEST(PlannerTest, HostMemoryIsABudgetToo) {
  PlanRequest request = TenBlocks();
  request.constraints.vram_budget_bytes = 600 + 4 * kBlock;  // 8 streamed, or 7 over one slot
  request.constraints.host_budget_bytes = 6 * kBlock;
  const absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("host memory too small"), HasSubstr("needed 7.0 KiB"),
                    HasSubstr("available 6.0 KiB"), HasSubstr("host_budget 7.0 KiB (7168 bytes)"),
                    HasSubstr("vram_budget 6.6 KiB (6744 bytes) with blocks_to_swap 6")));
  request.constraints.host_budget_bytes = 7 * kBlock;
  absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->slots, 1);
  request.constraints.host_budget_bytes = 6 * kBlock;
  request.constraints.vram_budget_bytes = 6744;
  EXPECT_TRUE(Plan(request).ok());
}

TEST(PlannerTest, PredictsTimesWhenSpeedsAreKnown) {
  PlanRequest request = TenBlocks();
  request.constraints.blocks_to_swap = 5;
  request.compute_flops_per_second = request.model.forward_flops;         // forward 1 s, step 3 s
  request.link.h2d_bytes_per_second = static_cast<double>(kBlock) * 100;  // 10 ms a block
  absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_NEAR(absl::ToDoubleSeconds(plan->prediction.compute), 3.0, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(plan->prediction.copy), 0.06, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(plan->prediction.step), 3.0, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(plan->prediction.bound), 3.0, 1e-9);
  request.link.h2d_bytes_per_second = static_cast<double>(kBlock);  // 1 s a block
  plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_NEAR(absl::ToDoubleSeconds(plan->prediction.copy), 6.0, 1e-9);
  EXPECT_NEAR(absl::ToDoubleSeconds(plan->prediction.bound), 6.0, 1e-9);
  EXPECT_GE(plan->prediction.step, plan->prediction.bound);
  EXPECT_EQ(plan->prediction.step, plan->prediction.compute + plan->prediction.stall);
  request.link.h2d_bytes_per_second = 0;
  plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.step, absl::ZeroDuration());
}

TEST(PlannerTest, PageableMastersAreCopiedAtThePageableRate) {
  PlanRequest request = TenBlocks();
  request.constraints.blocks_to_swap = 5;
  request.constraints.pin_policy = PinPolicy::kNever;
  request.compute_flops_per_second = request.model.forward_flops;
  request.link.h2d_bytes_per_second = static_cast<double>(kBlock) * 100;
  request.link.pageable_bytes_per_second = static_cast<double>(kBlock) * 50;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_NEAR(absl::ToDoubleSeconds(plan->prediction.copy), 0.12, 1e-9);
}

PlanRequest RandomRequest(std::mt19937_64& random) {
  const auto below = [&](int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random);
  };
  PlanRequest request =
      MakeFakeModel(random, static_cast<int>(1 + below(24)), 1500, below(2) == 0).request();
  request.model.edge_bytes = below(3000);
  request.model.adapter_bytes = below(1000);
  request.model.optimizer_bytes = below(1000);
  request.model.boundary_bytes = below(2000);
  request.model.block_activation_bytes = below(2000);
  request.model.edge_activation_bytes = below(2000);
  request.constraints.mode = below(2) == 0 ? TransferMode::kH2dOnly : TransferMode::kExchange;
  request.constraints.ring_size = static_cast<int>(1 + below(4));
  request.micro_batches = static_cast<int>(1 + below(3));
  const int64_t total =
      std::accumulate(request.model.blocks.begin(), request.model.blocks.end(), int64_t{9000},
                      [](int64_t sum, const BlockProfile& block) { return sum + block.bytes; });
  request.constraints.vram_budget_bytes = 1 + below(total);
  if (below(3) == 0) request.constraints.host_budget_bytes = 1 + below(total);
  if (below(4) == 0) request.device_free_bytes = 1 + below(total);
  request.copies_need_pinned_memory = below(2) == 0;
  return request;
}

TEST(PlannerTest, EveryPlanFitsItsBudgetsAndRunsByHand) {
  int plans = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const PlanRequest request = RandomRequest(random);
    const absl::StatusOr<SwapPlan> plan = Plan(request);
    if (!plan.ok()) {
      ASSERT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition) << plan.status();
      ASSERT_TRUE(absl::StrContains(plan.status().message(), "needed")) << plan.status();
      ASSERT_TRUE(absl::StrContains(plan.status().message(), "would fit")) << plan.status();
      continue;
    }
    ++plans;
    const Prediction& prediction = plan->prediction;
    ASSERT_TRUE(ValidatePlan(*plan, request.model.blocks).ok());
    ASSERT_LE(prediction.device_bytes, *request.constraints.vram_budget_bytes);
    if (request.device_free_bytes > 0) {
      ASSERT_LE(prediction.device_bytes, request.device_free_bytes);
    }
    ASSERT_EQ(prediction.device_bytes, prediction.ring_bytes + prediction.resident_bytes +
                                           prediction.edge_bytes + prediction.adapter_bytes +
                                           prediction.optimizer_bytes +
                                           prediction.activation_bytes);
    if (request.constraints.host_budget_bytes.has_value()) {
      ASSERT_LE(prediction.pinned_bytes + prediction.pageable_bytes,
                *request.constraints.host_budget_bytes);
    }
    for (const TransferSchedule* schedule : {&plan->training, &plan->forward_only}) {
      const NaiveCycle cycle = RunByHand(*plan, *schedule);
      ASSERT_EQ(cycle.absent, 0);
      ASSERT_EQ(cycle.impossible, 0);
      ASSERT_EQ(cycle.final_blocks,
                std::set<int>(schedule->initial.begin(), schedule->initial.end()));
    }
    ASSERT_EQ(Plan(request)->training, plan->training);  // pure
  }
  EXPECT_GT(plans, 500);
}

}  // namespace
}  // namespace blockswap::offload
