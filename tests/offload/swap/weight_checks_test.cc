// SPDX-License-Identifier: Apache-2.0
// verify_weights: a changed byte is found wherever it is, and right weights are never accused.
#include "offload/swap/weight_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/device/host_device.h"
#include "offload/device/simulated_device.h"
#include "offload/plan/layer_schedule.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/fake_plan.h"

namespace blockswap::offload {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kBlocks = 4;

class WeightChecksTest : public ::testing::Test {
 protected:
  WeightChecksTest() {
    std::mt19937_64 random(9);
    model_ = MakeLayeredModel(random, kBlocks, 4, 1000, /*alike=*/false);
  }
  std::unique_ptr<BlockSwapper> Start(DeviceRuntime* device, const SwapPlan& plan) {
    auto swapper = BlockSwapper::Create(device, plan, model_.blocks, model_.reader(),
                                        {.verify_weights = true});
    EXPECT_TRUE(swapper.ok()) << swapper.status();
    return *std::move(swapper);
  }
  const BlockProfile& profile(int block) const { return model_.blocks[static_cast<size_t>(block)]; }
  absl::Status Step(BlockSwapper& swapper) {
    absl::Status status = swapper.BeginPass(PassKind::kTraining);
    for (int visit = 0; status.ok() && visit < 2 * kBlocks; ++visit) {
      const Direction direction = visit < kBlocks ? Direction::kForward : Direction::kBackward;
      const int block = visit < kBlocks ? visit : 2 * kBlocks - 1 - visit;
      const absl::StatusOr<BlockLease> lease = swapper.Acquire(block, direction);
      if (!lease.ok()) return lease.status();
      for (int layer : direction == Direction::kForward ? profile(block).forward_layers
                                                        : profile(block).backward_layers) {
        status.Update(
            lease->Hold(profile(block).layers[static_cast<size_t>(layer)].tensors[0]).status());
      }
    }
    return status;
  }
  std::vector<SwapPlan> Plans() {
    SwapPlan trained = MakeRingPlan(model_.blocks, {1, 3}, 2);
    trained.base_trains = true;
    SwapPlan from_file = MakeRingPlan(model_.blocks, {0, 2, 3}, 1);
    from_file.blocks[2].tier = HostTier::kFile;
    return {MakeRingPlan(model_.blocks, {}, 1), MakeRingPlan(model_.blocks, {0, 1, 2, 3}, 2),
            trained, from_file, MakeLayerPlan(model_.blocks, {0, 2})};
  }

  FakeModel model_;
};

TEST_F(WeightChecksTest, RightWeightsPassUnderEveryPlanOnEveryKindOfDevice) {
  for (const SwapPlan& plan : Plans()) {
    for (const bool visible : {false, true}) {
      for (const bool pinned : {false, true}) {
        SimulatedDevice device({.latency = absl::Microseconds(20),
                                .host_visible = visible,
                                .copies_need_pinned_memory = pinned});
        auto swapper = Start(&device, plan);
        for (int step = 0; step < 2; ++step) {
          const absl::Status stepped = Step(*swapper);
          ASSERT_TRUE(stepped.ok()) << stepped;
          const absl::Status verified = swapper->VerifyAll();
          ASSERT_TRUE(verified.ok()) << verified;
        }
        EXPECT_THAT(device.violations(), IsEmpty());
      }
    }
  }
}

TEST_F(WeightChecksTest, AByteThatChangedInASlotIsFoundByTheNextLease) {
  auto device = *HostDevice::Create({});
  auto swapper = Start(device.get(), MakeRingPlan(model_.blocks, {0, 1, 2, 3}, 2));
  const BlockLease lease = *swapper->Acquire(0, Direction::kForward);
  lease.Get(0)->data[0] ^= std::byte{1};
  const absl::Status found = swapper->Acquire(0, Direction::kForward).status();
  EXPECT_EQ(found.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(found.message()), HasSubstr("block 0 in slot "));
  EXPECT_THAT(std::string(found.message()),
              HasSubstr(absl::StrCat("generation ", lease.generation(), ": checksum expected")));
  EXPECT_EQ(swapper->BeginPass(PassKind::kTraining), found);  // kept, like every first error
}

TEST_F(WeightChecksTest, AByteThatChangedInAResidentIsFoundAtTheEnd) {
  auto device = *HostDevice::Create({});
  auto swapper = Start(device.get(), MakeRingPlan(model_.blocks, {0, 1}, 2));
  swapper->Acquire(3, Direction::kForward)->Get(0)->data[0] ^= std::byte{1};
  const absl::Status found = swapper->VerifyAll();
  EXPECT_EQ(found.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(found.message()), HasSubstr("block 3"));
}

TEST_F(WeightChecksTest, AByteThatChangedInTheWindowIsFoundByTheNextHold) {
  auto device = *HostDevice::Create({});
  auto swapper = Start(device.get(), MakeLayerPlan(model_.blocks, {0, 1, 2, 3}));
  const LayerProfile& layer = profile(0).layers[static_cast<size_t>(profile(0).forward_layers[0])];
  const BlockLease lease = *swapper->Acquire(0, Direction::kForward);
  {
    const TensorLease held = *lease.Hold(layer.tensors[0]);
    held.span().data[0] ^= std::byte{1};
    EXPECT_EQ(swapper->VerifyAll().code(), absl::StatusCode::kDataLoss);
  }
}

TEST_F(WeightChecksTest, AMasterThatChangedBehindOurBackIsFoundAndOneThatWasDeclaredIsNot) {
  auto device = *HostDevice::Create({});
  SwapPlan plan = MakeRingPlan(model_.blocks, {0, 1, 2, 3}, 1);
  plan.base_trains = true;
  auto swapper = Start(device.get(), plan);
  const absl::Span<std::byte> master = *swapper->MutableMaster(2);
  master[0] ^= std::byte{1};
  ASSERT_TRUE(swapper->MasterChanged(2).ok());
  EXPECT_TRUE(swapper->VerifyAll().ok());
  EXPECT_TRUE(swapper->Acquire(2, Direction::kForward).ok());
  master[0] ^= std::byte{1};
  const absl::Status found = swapper->VerifyAll();
  EXPECT_EQ(found.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(found.message()), HasSubstr("master"));
}

TEST_F(WeightChecksTest, PlansMayChangeUnderTheChecks) {
  auto device = *HostDevice::Create({});
  auto swapper = Start(device.get(), MakeRingPlan(model_.blocks, {0, 1, 2, 3}, 2));
  for (const SwapPlan& plan :
       {MakeRingPlan(model_.blocks, {1}, 1), MakeLayerPlan(model_.blocks, {0, 2}),
        MakeRingPlan(model_.blocks, {}, 1), MakeRingPlan(model_.blocks, {0, 3}, 2)}) {
    ASSERT_TRUE(swapper->Adopt(plan).ok());
    ASSERT_TRUE(Step(*swapper).ok());
    const absl::Status verified = swapper->VerifyAll();
    EXPECT_TRUE(verified.ok()) << verified;
  }
}

TEST_F(WeightChecksTest, WithoutChecksumsThereIsNothingToVerify) {
  auto device = *HostDevice::Create({});
  auto swapper = *BlockSwapper::Create(device.get(), MakeRingPlan(model_.blocks, {0}, 1),
                                       model_.blocks, model_.reader());
  EXPECT_EQ(swapper->VerifyAll().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace blockswap::offload
