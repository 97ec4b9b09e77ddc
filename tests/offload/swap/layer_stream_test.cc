// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/layer_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "offload/device/host_device.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/fake_plan.h"

namespace blockswap::offload {
namespace {

using ::testing::HasSubstr;

constexpr int kBlocks = 5;

// Asks for the linears of each block in the planned order, one at a time, as a model does.
class LayerStreamTest : public ::testing::Test {
 protected:
  LayerStreamTest() {
    std::mt19937_64 random(17);
    model_ = MakeLayeredModel(random, kBlocks, 6, 3000, /*alike=*/false);
  }
  void Start(const std::vector<int>& streamed, const HostDeviceOptions& options = {}) {
    swapper_.reset();
    device_ = *HostDevice::Create(options);
    absl::StatusOr<std::unique_ptr<BlockSwapper>> swapper = BlockSwapper::Create(
        device_.get(), MakeLayerPlan(model_.blocks, streamed), model_.blocks, model_.reader());
    ASSERT_TRUE(swapper.ok()) << swapper.status();
    swapper_ = *std::move(swapper);
  }
  const BlockProfile& profile(int block) const { return model_.blocks[static_cast<size_t>(block)]; }
  const std::byte* Expected(int block, int tensor) const {
    return model_.contents[static_cast<size_t>(block)].data() +
           profile(block).tensors[static_cast<size_t>(tensor)].offset;
  }
  void Visit(int block, Direction direction) {
    const absl::StatusOr<BlockLease> lease = swapper_->Acquire(block, direction);
    ASSERT_TRUE(lease.ok()) << lease.status();
    for (int layer : direction == Direction::kForward ? profile(block).forward_layers
                                                      : profile(block).backward_layers) {
      std::vector<TensorLease> together;
      for (int tensor : profile(block).layers[static_cast<size_t>(layer)].tensors) {
        absl::StatusOr<TensorLease> held = lease->Hold(tensor);
        ASSERT_TRUE(held.ok()) << held.status();
        ASSERT_EQ(std::memcmp(held->span().data, Expected(block, tensor),
                              static_cast<size_t>(held->span().bytes)),
                  0);
        if (holds_together_) together.push_back(*std::move(held));
      }
    }
  }
  void Step() {
    ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
    for (int block = 0; block < kBlocks; ++block) Visit(block, Direction::kForward);
    for (int block = kBlocks - 1; block >= 0; --block) Visit(block, Direction::kBackward);
  }
  void Sample() {
    ASSERT_TRUE(swapper_->BeginPass(PassKind::kForwardOnly).ok());
    for (int block = 0; block < kBlocks; ++block) Visit(block, Direction::kForward);
  }
  int FirstTensorOfLayer(int block, int layer) const {
    return profile(block).layers[static_cast<size_t>(layer)].tensors[0];
  }

  FakeModel model_;
  bool holds_together_ = true;  // the tensors of a layer, or one after the other
  std::unique_ptr<HostDevice> device_;
  std::unique_ptr<BlockSwapper> swapper_;
};

TEST_F(LayerStreamTest, TrainsAndSamplesWithoutAMissAndMovesWhatThePlanSays) {
  for (const bool staged : {false, true}) {
    for (const std::vector<int>& streamed :
         {std::vector<int>{0, 1, 2, 3, 4}, {1, 3}, {0}, {4}, {0, 1, 4}}) {
      Start(streamed, {.latency = absl::Microseconds(30), .copies_need_pinned_memory = staged});
      Step();
      for (int round = 0; round < 2; ++round) {
        ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
        const int64_t before = swapper_->stats().h2d_bytes;
        Step();
        EXPECT_EQ(swapper_->stats().h2d_bytes - before,
                  LayerCycleBytes(swapper_->plan().window, PassKind::kTraining, model_.blocks));
        Sample();
      }
      EXPECT_EQ(swapper_->stats().misses, 0);
      EXPECT_EQ(device_->copies(CopyDirection::kDeviceToHost).bytes, 0);
    }
  }
}

// A weight that is let go before its bias is asked for: the first step shows that, and the next
// ones keep the layer until both were read.
TEST_F(LayerStreamTest, ALayerAskedForTensorByTensorIsKeptForThemAll) {
  Start({0, 1, 2, 3, 4});
  holds_together_ = false;
  Step();
  EXPECT_GT(swapper_->stats().misses, 0);
  Step();
  const int64_t misses = swapper_->stats().misses;
  for (int step = 0; step < 3; ++step) Step();
  EXPECT_EQ(swapper_->stats().misses, misses);
}

TEST_F(LayerStreamTest, TheDeviceHoldsResidentsNormsAndTheWindowAndNeverMore) {
  Start({0, 2, 4});
  int64_t expected = profile(1).bytes + profile(3).bytes + swapper_->plan().window.bytes;
  int64_t largest_linears[2] = {0, 0};
  for (int block : {0, 2, 4}) {
    expected += LayoutRest(profile(block)).bytes;
    for (const LayerProfile& layer : profile(block).layers) {
      int64_t bytes = layer.bytes;
      if (bytes > largest_linears[0]) std::swap(bytes, largest_linears[0]);
      if (bytes > largest_linears[1]) std::swap(bytes, largest_linears[1]);
    }
  }
  EXPECT_EQ(swapper_->plan().window.bytes, largest_linears[0] + largest_linears[1]);
  Step();
  Sample();
  Step();
  EXPECT_EQ(device_->ledger().Snapshot().total_peak_bytes, expected);
  EXPECT_EQ(swapper_->stats().device_weight_bytes_peak, expected);
  swapper_.reset();
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes, 0);
}

TEST_F(LayerStreamTest, ATensorOfALayerIsToBeHadByHoldingItOnly) {
  Start({0, 1, 2, 3, 4});
  const BlockLease lease = *swapper_->Acquire(0, Direction::kForward);
  const int tensor = FirstTensorOfLayer(0, 0);
  const absl::Status refused = lease.Get(tensor).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("while it is held"));
  const TensorLease held = *lease.Hold(tensor);
  EXPECT_TRUE(held.transient());
  EXPECT_EQ(lease.Hold(99).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(LayerStreamTest, WhatIsHeldStaysAndAPassDoesNotBeginUnderIt) {
  Start({0, 1, 2, 3, 4});
  ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
  TensorLease kept;
  {
    const BlockLease lease = *swapper_->Acquire(0, Direction::kForward);
    kept = *lease.Hold(FirstTensorOfLayer(0, profile(0).forward_layers[0]));
  }
  EXPECT_EQ(swapper_->BeginPass(PassKind::kTraining).code(), absl::StatusCode::kFailedPrecondition);
  // Others come and go beside it, or are refused; it stays what it was.
  for (int block = 0; block < kBlocks; ++block) {
    const BlockLease lease = *swapper_->Acquire(block, Direction::kForward);
    for (int layer : profile(block).forward_layers) {
      const absl::Status other = lease.Hold(FirstTensorOfLayer(block, layer)).status();
      EXPECT_TRUE(other.ok() || other.code() == absl::StatusCode::kFailedPrecondition) << other;
    }
  }
  EXPECT_EQ(std::memcmp(kept.span().data,
                        Expected(0, FirstTensorOfLayer(0, profile(0).forward_layers[0])),
                        static_cast<size_t>(kept.span().bytes)),
            0);
  kept.Release();
  Step();
  EXPECT_EQ(swapper_->stats().d2h_bytes, 0);
}

TEST_F(LayerStreamTest, AVisitOutOfOrderIsAMissAndNeverWrong) {
  Start({0, 1, 2, 3, 4});
  ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
  for (const int block : {0, 4, 2, 2, 1, 3, 0}) Visit(block, Direction::kForward);
  EXPECT_GT(swapper_->stats().misses, 0);
  const int64_t misses = swapper_->stats().misses;
  Step();
  Step();
  EXPECT_EQ(swapper_->stats().misses, misses);
}

TEST_F(LayerStreamTest, PlansOfBothGranularitiesFollowEachOther) {
  Start({0, 2, 4});
  Step();
  ASSERT_TRUE(swapper_->Adopt(MakeRingPlan(model_.blocks, {1, 2}, 1)).ok());
  Step();
  const SwapPlan layers = MakeLayerPlan(model_.blocks, {0, 1, 2, 3});
  ASSERT_TRUE(swapper_->Adopt(layers).ok());
  Step();
  EXPECT_EQ(swapper_->stats().misses, 0);
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes,
            layers.prediction.ring_bytes + layers.prediction.resident_bytes);
}

}  // namespace
}  // namespace blockswap::offload
