// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

PlanRequest EightBlocks() {
  PlanRequest request = MakeUniformModel(8, 1024).request();
  request.model.boundary_bytes = 2048;
  request.model.adapter_bytes = 2048;
  return request;
}

// The same, each of four linears.
PlanRequest LayeredBlocks() {
  PlanRequest request = EightBlocks();
  for (BlockProfile& block : request.model.blocks) {
    block.tensors = {{0, 256}, {256, 256}, {512, 256}, {768, 256}};
    for (int i = 0; i < 4; ++i) {
      block.layers.push_back({{i}, i * 256, 256});
      block.forward_layers.push_back(i);
      block.backward_layers.push_back(3 - i);
    }
  }
  return request;
}

// The number in front of " bytes)" of the offer that starts with `name`, or -1.
int64_t OfferedBytes(const std::string& message, const std::string& name) {
  const size_t offer = message.find(name, message.find("would fit"));
  if (offer == std::string::npos) return -1;
  const size_t begin = message.find('(', offer) + 1;
  int64_t bytes = -1;
  if (!absl::SimpleAtoi(message.substr(begin, message.find(' ', begin) - begin), &bytes)) return -1;
  return bytes;
}

TEST(EffectiveBudgetsTest, TakesTheTighterOfAskedAndFree) {
  PlanRequest request = EightBlocks();
  EXPECT_EQ(EffectiveBudgets(request).device_bytes, 0);
  request.device_free_bytes = 5000;
  EXPECT_EQ(EffectiveBudgets(request).device_bytes, 5000);
  request.constraints.vram_budget_bytes = 4000;
  EXPECT_EQ(EffectiveBudgets(request).device_bytes, 4000);
  EXPECT_TRUE(EffectiveBudgets(request).notes.empty());
  request.constraints.vram_budget_bytes = 6000;
  EXPECT_EQ(EffectiveBudgets(request).device_bytes, 5000);
  EXPECT_EQ(EffectiveBudgets(request).notes.size(), 1u);
}

TEST(DoesNotFitTest, NamesEveryPurposeOfTheBytesNeeded) {
  PlanRequest request = EightBlocks();
  request.constraints.vram_budget_bytes = 3000;
  const absl::Status refused = Plan(request).status();
  EXPECT_THAT(
      std::string(refused.message()),
      AllOf(HasSubstr("vram_budget too small"), HasSubstr("blocks_to_swap 8 and ring_size 1"),
            HasSubstr("ring 1.0 KiB"), HasSubstr("adapter 2.0 KiB"),
            HasSubstr("activations 2.0 KiB"), HasSubstr("available 2.9 KiB (3000 bytes)")));
}

TEST(DoesNotFitTest, OffersWhatElseCouldBeLowered) {
  PlanRequest request = EightBlocks();
  request.constraints.vram_budget_bytes = 5120 - 1000;  // 1000 bytes short
  const std::string message(Plan(request).status().message());
  EXPECT_THAT(message, AllOf(HasSubstr("a batch or resolution with 1.0 KiB (1048 bytes)"),
                             HasSubstr("an adapter that takes 1.0 KiB (1048 bytes)")));
  request.model.boundary_bytes = 1048;
  EXPECT_TRUE(Plan(request).ok());
}

TEST(DoesNotFitTest, AFixedCountIsToldThatARingOfOneWouldDo) {
  PlanRequest request = EightBlocks();
  request.constraints.blocks_to_swap = 2;
  request.constraints.vram_budget_bytes = 4096 + 1024;
  const std::string message(Plan(request).status().message());
  EXPECT_THAT(message, HasSubstr("would fit: blocks_to_swap 8 and ring_size 1"));
}

TEST(DoesNotFitTest, OffersOneLinearAtATimeWhereThatFits) {
  PlanRequest request = LayeredBlocks();
  request.constraints.vram_budget_bytes = 2048 + 2048 + 512;  // two linears of a block
  const std::string message(Plan(request).status().message());
  EXPECT_THAT(message, HasSubstr("granularity layer with blocks_to_swap 8"));
  request.constraints.granularity = Granularity::kLayer;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.device_bytes, *request.constraints.vram_budget_bytes);
}

// Whatever a refusal offers as a budget is planned when it is asked for, and one byte less is not.
TEST(DoesNotFitTest, TheBudgetItOffersFitsExactly) {
  int refusals = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    PlanRequest request =
        MakeFakeModel(random, 1 + static_cast<int>(random() % 9), 900, random() % 2 == 0).request();
    request.model.boundary_bytes = static_cast<int64_t>(random() % 5000);
    request.model.edge_bytes = static_cast<int64_t>(random() % 5000);
    request.constraints.mode = random() % 2 == 0 ? TransferMode::kH2dOnly : TransferMode::kExchange;
    if (random() % 3 == 0) {
      request.constraints.blocks_to_swap = static_cast<int>(
          random() %
          (1 + static_cast<uint64_t>(MaxBlocksToSwap(request.model, request.constraints.mode))));
    }
    request.constraints.vram_budget_bytes = 1 + static_cast<int64_t>(random() % 6000);
    const absl::Status refused = Plan(request).status();
    if (refused.ok()) continue;
    ++refusals;
    const int64_t offered = OfferedBytes(std::string(refused.message()), "vram_budget ");
    ASSERT_GT(offered, *request.constraints.vram_budget_bytes) << refused;
    request.constraints.vram_budget_bytes = offered;
    const absl::StatusOr<SwapPlan> plan = Plan(request);
    ASSERT_TRUE(plan.ok()) << plan.status() << " after " << refused;
    request.constraints.vram_budget_bytes = offered - 1;
    ASSERT_FALSE(Plan(request).ok());
  }
  EXPECT_GT(refusals, 100);
}

TEST(DoesNotFitTest, TheHostBudgetItOffersFits) {
  PlanRequest request = EightBlocks();
  request.constraints.blocks_to_swap = 6;
  request.constraints.host_budget_bytes = 5000;
  request.copies_need_pinned_memory = true;
  const absl::Status refused = Plan(request).status();
  const int64_t offered = OfferedBytes(std::string(refused.message()), "host_budget ");
  EXPECT_EQ(offered, 6 * 1024 + 1024) << refused;
  request.constraints.host_budget_bytes = offered;
  EXPECT_TRUE(Plan(request).ok());
}

// Layers come from memory alone: the answer names the setting and the tier that do not go together.
TEST(DoesNotFitTest, LayerGranularityWithMastersLeftInTheFileNamesBoth) {
  PlanRequest request = LayeredBlocks();
  request.constraints.granularity = Granularity::kLayer;
  request.constraints.blocks_to_swap = 6;
  request.constraints.host_budget_bytes = 5000;
  request.may_stream_from_file = true;
  const absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("host memory too small: needed 6.0 KiB (6144 bytes)"),
                    HasSubstr("none of which granularity layer can leave in the checkpoint file"),
                    HasSubstr("would fit: host_budget 6.0 KiB (6144 bytes), or granularity block, "
                              "which reads from the file what has no room in memory")));
  // What it offers is planned.
  request.constraints.granularity = Granularity::kBlock;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->prediction.file_bytes, 0);
  // Where there is no such tier, it is not spoken of.
  request.constraints.granularity = Granularity::kLayer;
  request.may_stream_from_file = false;
  EXPECT_THAT(std::string(Plan(request).status().message()), Not(HasSubstr("file")));
}

// Each answer names both settings, and what to set instead.
TEST(ContradictionsTest, LayerGranularityWithExchangeNamesBoth) {
  PlanRequest request = EightBlocks();
  request.constraints.granularity = Granularity::kLayer;
  request.constraints.mode = TransferMode::kExchange;
  const absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("granularity layer"), HasSubstr("mode is exchange"),
                    HasSubstr("set granularity: block or memory.mode: h2d_only")));
}

TEST(ContradictionsTest, LayerGranularityWithATrainedBaseNamesBoth) {
  PlanRequest request = EightBlocks();
  request.constraints.granularity = Granularity::kLayer;
  request.constraints.mode = TransferMode::kExchange;
  request.base_trains = true;
  const absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("granularity layer"), HasSubstr("network.type none"),
                    HasSubstr("set granularity: block")));
}

}  // namespace
}  // namespace blockswap::offload
