// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/host_tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kBlock = 1024;

// Eight blocks, all streamed over two slots.
PlanRequest Eight() {
  PlanRequest request = MakeUniformModel(8, kBlock).request();
  request.constraints.blocks_to_swap = 8;
  request.may_stream_from_file = true;
  return request;
}

HostTiers TiersOf(const PlanRequest& request) {
  return AssignTiers(request, EffectiveBudgets(request), MakeCandidate(request, 8, 2));
}

TEST(AssignTiersTest, FillsLockedThenPageableThenTheFile) {
  PlanRequest request = Eight();
  request.copies_need_pinned_memory = true;
  // Room for five masters and two staging buffers; three masters may be locked beside the buffers.
  request.constraints.host_budget_bytes = 7 * kBlock;
  request.lockable_bytes = 5 * kBlock;
  const HostTiers tiers = TiersOf(request);
  const std::vector<HostTier> expected = {
      HostTier::kPinned,   HostTier::kPinned, HostTier::kPinned, HostTier::kPageable,
      HostTier::kPageable, HostTier::kFile,   HostTier::kFile,   HostTier::kFile};
  EXPECT_EQ(tiers.tier_of, expected);
  EXPECT_EQ(tiers.pinned_bytes, 5 * kBlock);  // three masters, two buffers
  EXPECT_EQ(tiers.pageable_bytes, 2 * kBlock);
  EXPECT_EQ(tiers.file_bytes, 3 * kBlock);
  EXPECT_EQ(tiers.host_bytes(), *request.constraints.host_budget_bytes);
}

TEST(AssignTiersTest, EverythingIsLockedWhereLimitAndBudgetAllow) {
  PlanRequest request = Eight();
  request.copies_need_pinned_memory = true;
  request.constraints.host_budget_bytes = 8 * kBlock;
  const HostTiers tiers = TiersOf(request);
  EXPECT_EQ(tiers.pinned_bytes, 8 * kBlock);
  EXPECT_EQ(tiers.pageable_bytes + tiers.file_bytes, 0);
  EXPECT_FALSE(tiers.staged);
}

TEST(AssignTiersTest, FileReadsNeedBuffersEvenWhereCopiesDoNot) {
  PlanRequest request = Eight();
  request.constraints.host_budget_bytes = 4 * kBlock;
  const HostTiers tiers = TiersOf(request);
  EXPECT_EQ(tiers.file_bytes, 6 * kBlock);
  EXPECT_EQ(tiers.host_bytes(), 4 * kBlock);
  EXPECT_TRUE(tiers.staged);
}

TEST(AssignTiersTest, WithoutFileTheMastersDoNotFit) {
  PlanRequest request = Eight();
  request.may_stream_from_file = false;
  request.constraints.host_budget_bytes = 4 * kBlock;
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kFailedPrecondition);
  request.may_stream_from_file = true;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.file_bytes, 6 * kBlock);
  EXPECT_THAT(plan->notes, ::testing::Contains(HasSubstr("read from the checkpoint at each use")));
}

TEST(AssignTiersTest, ABlockInTheFileCostsTimeByTheFilesRate) {
  PlanRequest request = Eight();
  request.compute_flops_per_second = request.model.forward_flops;
  request.link.h2d_bytes_per_second = 100 * kBlock;
  request.link.file_bytes_per_second = kBlock;
  const absl::Duration fast = Plan(request)->prediction.step;
  request.constraints.host_budget_bytes = 4 * kBlock;
  const absl::Duration slow = Plan(request)->prediction.step;
  EXPECT_GT(slow, fast + absl::Seconds(6)) << "six blocks wait a second each at least once";
  request.link.file_bytes_per_second = 0;
  EXPECT_EQ(Plan(request)->prediction.step, absl::ZeroDuration()) << "an unknown rate is no guess";
}

// F089: what is asked for and what is really locked are told apart.
TEST(AssignTiersTest, PinningThatCannotBeHonouredIsSaidAndPriced) {
  PlanRequest request = Eight();
  request.lockable_bytes = 0;
  request.copies_need_pinned_memory = true;
  request.compute_flops_per_second = request.model.forward_flops;
  request.link.h2d_bytes_per_second = 100 * kBlock;
  request.link.pageable_bytes_per_second = 10 * kBlock;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.pageable_bytes, 8 * kBlock);
  EXPECT_THAT(plan->notes, ::testing::Contains(AllOf(HasSubstr("8.0 KiB of host masters stay "
                                                               "pageable"),
                                                     HasSubstr("only 0 B may be page-locked"))));
  request.lockable_bytes = std::numeric_limits<int64_t>::max();
  EXPECT_LT(Plan(request)->prediction.copy, plan->prediction.copy);
}

TEST(CheckPinningTest, RequiredIsRefusedWithBothNumbers) {
  PlanRequest request = Eight();
  request.constraints.pin_policy = PinPolicy::kRequired;
  request.lockable_bytes = 3 * kBlock;
  const absl::Status refused = Plan(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("pinned_memory required"), HasSubstr("needed 8.0 KiB"),
                    HasSubstr("available 3.0 KiB")));
}

TEST(AssignTiersTest, ABaseThatTrainsHasAMasterForEveryBlockAndItsState) {
  PlanRequest request = Eight();
  request.base_trains = true;
  request.constraints.mode = TransferMode::kExchange;
  request.constraints.blocks_to_swap = 3;
  request.model.host_state_bytes = 5000;
  request.model.gradient_bytes = 700;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->base_trains);
  EXPECT_EQ(plan->prediction.pinned_bytes, 8 * kBlock);
  EXPECT_EQ(plan->prediction.pageable_bytes, 5000);
  EXPECT_EQ(plan->prediction.activation_bytes, 700);
  EXPECT_EQ(plan->slots, 2) << "a ring: trained weights never go down";
}

}  // namespace
}  // namespace blockswap::offload
