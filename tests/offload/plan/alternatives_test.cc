// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/alternatives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBlock = int64_t{64} << 10;

// Sixteen blocks whose copies take twice their compute.
PlanRequest Sixteen() {
  PlanRequest request = MakeUniformModel(16, kBlock).request();
  request.compute_flops_per_second = request.model.forward_flops / 16;  // 1 s a block
  request.link.h2d_bytes_per_second = static_cast<double>(kBlock) / 6;
  request.constraints.vram_budget_bytes = 8 * kBlock;
  return request;
}

TEST(AlternativesTest, LessMemoryIsSlowerAndMoreIsFaster) {
  const PlanRequest request = Sixteen();
  const SwapPlan plan = *Plan(request);
  const std::vector<Alternative> alternatives = Alternatives(request, plan);
  ASSERT_EQ(alternatives.size(), 2u);
  const Alternative& less = alternatives[0];
  const Alternative& more = alternatives[1];
  EXPECT_EQ(less.vram_budget_bytes, 7 * kBlock);
  EXPECT_EQ(more.vram_budget_bytes, 9 * kBlock);
  EXPECT_TRUE(less.fits);
  EXPECT_GT(less.step, plan.prediction.step);
  EXPECT_LT(more.step, plan.prediction.step);
  EXPECT_EQ(less.h2d_bytes_per_step, plan.prediction.h2d_bytes_per_step + 2 * kBlock);
  EXPECT_EQ(more.h2d_bytes_per_step, plan.prediction.h2d_bytes_per_step - 2 * kBlock);
  EXPECT_THAT(less.saves, HasSubstr("64.0 KiB less device memory"));
  EXPECT_THAT(less.saves, HasSubstr("longer"));
  EXPECT_THAT(more.saves, HasSubstr("128.0 KiB less to the device each step"));
  EXPECT_THAT(more.saves, HasSubstr("shorter"));
}

// Each is what planning with that budget gives.
TEST(AlternativesTest, AnAlternativeIsThePlanOfItsBudget) {
  PlanRequest request = Sixteen();
  const std::vector<Alternative> alternatives = Alternatives(request, *Plan(request));
  for (const Alternative& alternative : alternatives) {
    request.constraints.vram_budget_bytes = alternative.vram_budget_bytes;
    const SwapPlan plan = *Plan(request);
    EXPECT_EQ(plan.prediction.step, alternative.step);
    EXPECT_EQ(plan.prediction.device_bytes, alternative.device_bytes);
    EXPECT_EQ(plan.blocks_to_swap, alternative.blocks_to_swap);
    EXPECT_EQ(plan.num_streamed(), alternative.num_streamed);
  }
}

TEST(AlternativesTest, MoreMemoryThanEverythingNeedsIsNoAlternative) {
  PlanRequest request = Sixteen();
  request.constraints.vram_budget_bytes = 32 * kBlock;
  const std::vector<Alternative> alternatives = Alternatives(request, *Plan(request));
  ASSERT_EQ(alternatives.size(), 1u);
  EXPECT_LT(alternatives[0].vram_budget_bytes, 16 * kBlock);
}

TEST(AlternativesTest, TooLittleSaysSo) {
  PlanRequest request = Sixteen();
  request.constraints.vram_budget_bytes = kBlock;
  const std::vector<Alternative> alternatives = Alternatives(request, *Plan(request));
  EXPECT_FALSE(alternatives[0].fits);
  EXPECT_EQ(alternatives[0].saves, "does not fit");
}

}  // namespace
}  // namespace blockswap::offload
