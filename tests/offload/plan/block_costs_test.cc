// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/block_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Two blocks of 1024 bytes, one second each.
PlanRequest TwoBlocks() {
  PlanRequest request = MakeUniformModel(2, 1024).request();
  request.compute_flops_per_second = request.model.forward_flops / 2;
  request.model.backward_over_forward = 3;
  request.link.h2d_bytes_per_second = 1024;
  request.link.d2h_bytes_per_second = 512;
  return request;
}

TEST(MakeCostsTest, DividesComputeByTheBlocksOperations) {
  PlanRequest request = TwoBlocks();
  request.model.blocks[0].forward_flops *= 3;
  const BlockCosts costs = MakeCosts(request, {}, {});
  EXPECT_THAT(costs.forward, ElementsAre(1.5, 0.5));
  EXPECT_THAT(costs.backward, ElementsAre(4.5, 1.5));
  EXPECT_THAT(costs.h2d, ElementsAre(1, 1));
  EXPECT_THAT(costs.d2h, ElementsAre(2, 2));
  EXPECT_THAT(costs.boundary_h2d, IsEmpty());
}

TEST(MakeCostsTest, EveryTierHasItsPrice) {
  PlanRequest request = TwoBlocks();
  request.link.pageable_bytes_per_second = 512;
  request.link.file_bytes_per_second = 256;
  using T = HostTier;
  EXPECT_THAT(MakeCosts(request, {T::kPinned, T::kPageable}, {}).h2d, ElementsAre(1, 2));
  EXPECT_THAT(MakeCosts(request, {T::kPageable, T::kFile}, {}).h2d, ElementsAre(2, 4));
  request.link.file_bytes_per_second = 0;  // unknown
  EXPECT_THAT(MakeCosts(request, {T::kPageable, T::kFile}, {}).h2d, ElementsAre(2, 1));
}

TEST(MakeCostsTest, BothWaysAtOnceAreSlowerWhereTheyMeet) {
  PlanRequest request = TwoBlocks();
  request.link.duplex_h2d_bytes_per_second = 256;
  request.link.duplex_d2h_bytes_per_second = 128;
  EXPECT_THAT(MakeCosts(request, {}, {}).h2d, Each(1)) << "nothing goes back";
  request.constraints.mode = TransferMode::kExchange;
  EXPECT_THAT(MakeCosts(request, {}, {}).h2d, Each(4));
  EXPECT_THAT(MakeCosts(request, {}, {}).d2h, Each(8));
}

TEST(MakeCostsTest, AKeptBlockSavesItsRecompute) {
  ActivationChoice choice;
  choice.keeps = {false, true};
  EXPECT_THAT(MakeCosts(TwoBlocks(), {}, choice).backward, ElementsAre(3, 2));
}

TEST(MakeCostsTest, BlockMajorComputesEveryMicroBatchAtOneVisit) {
  PlanRequest request = TwoBlocks();
  request.micro_batches = 4;
  ActivationChoice choice;
  choice.block_major = true;
  const BlockCosts costs = MakeCosts(request, {}, choice);
  EXPECT_THAT(costs.forward, Each(4));
  EXPECT_THAT(costs.h2d, Each(1));
}

TEST(MakeCostsTest, InputsThatWaitOnTheHostTakeTheLinkToo) {
  PlanRequest request = TwoBlocks();
  request.model.boundary_bytes = 1024;
  ActivationChoice choice;
  choice.num_offloaded = 1;
  const BlockCosts costs = MakeCosts(request, {}, choice);
  EXPECT_THAT(costs.boundary_h2d, ElementsAre(0.5, 0));
  EXPECT_THAT(costs.boundary_d2h, ElementsAre(1, 0));
}

TEST(SpeedsAreKnownTest, NeedsBothComputeAndLink) {
  PlanRequest request = TwoBlocks();
  EXPECT_TRUE(SpeedsAreKnown(request));
  request.link.h2d_bytes_per_second = 0;
  EXPECT_FALSE(SpeedsAreKnown(request));
  EXPECT_THAT(MakeCosts(request, {}, {}).h2d, Each(0));
}

}  // namespace
}  // namespace blockswap::offload
