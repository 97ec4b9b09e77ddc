// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/block_lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "offload/device/simulated_device.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::HasSubstr;

class BlockLeaseTest : public ::testing::Test {
 protected:
  BlockLeaseTest() {
    PlanRequest request = model_.request();
    request.constraints.blocks_to_swap = 3;
    request.constraints.ring_size = 1;
    swapper_ = *BlockSwapper::Create(&device_, *Plan(request), model_.blocks, model_.reader());
  }

  FakeModel model_ = MakeUniformModel(4, 512);
  SimulatedDevice device_{{}};
  std::unique_ptr<BlockSwapper> swapper_;
};

TEST_F(BlockLeaseTest, MovingPassesTheRightOnOnce) {
  BlockLease lease = *swapper_->Acquire(0, Direction::kForward);
  EXPECT_TRUE(lease.valid());
  EXPECT_EQ(lease.block(), 0);
  BlockLease moved = std::move(lease);
  EXPECT_FALSE(lease.valid());  // NOLINT: what a moved-from lease says is part of its contract
  EXPECT_TRUE(moved.Get(0).ok());
  EXPECT_FALSE(swapper_->BeginPass(PassKind::kTraining).ok());
  moved = BlockLease();
  EXPECT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
}

TEST_F(BlockLeaseTest, AReleasedLeaseReadsNothing) {
  BlockLease lease = *swapper_->Acquire(0, Direction::kForward);
  lease.Release();
  lease.Release();
  EXPECT_FALSE(lease.valid());
  EXPECT_EQ(lease.Get(0).status().code(), absl::StatusCode::kInternal);
}

TEST_F(BlockLeaseTest, ATensorThatTheBlockDoesNotHaveIsRefused) {
  const BlockLease lease = *swapper_->Acquire(0, Direction::kForward);
  EXPECT_EQ(lease.Get(1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(lease.Get(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BlockLeaseTest, HoldingATensorGivesItsBytesAndEndsWithTheValue) {
  const BlockLease lease = *swapper_->Acquire(0, Direction::kForward);
  absl::StatusOr<TensorLease> held = lease.Hold(0);
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(held->span().data, lease.Get(0)->data);
  EXPECT_EQ(held->span().bytes, 512);
  TensorLease moved = *std::move(held);
  EXPECT_EQ(held->span().data, nullptr);  // NOLINT: moved from
  EXPECT_EQ(moved.span().data, lease.Get(0)->data);
  moved.Release();
  EXPECT_EQ(moved.span().data, nullptr);
  EXPECT_EQ(lease.Hold(1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BlockLeaseTest, AReleasedLeaseHoldsNothing) {
  BlockLease lease = *swapper_->Acquire(0, Direction::kForward);
  lease.Release();
  EXPECT_EQ(lease.Hold(0).status().code(), absl::StatusCode::kInternal);
}

// Nobody can hold such a lease by the rules; a copy of the bytes stands for whatever breaks them
// (F15).
TEST_F(BlockLeaseTest, ALeaseOfAnOldGenerationIsFatalNotWrong) {
  alignas(BlockLease) std::byte stolen[sizeof(BlockLease)];
  const int block = swapper_->plan().streamed_blocks()[0];
  {
    const BlockLease lease = *swapper_->Acquire(block, Direction::kForward);
    std::memcpy(stolen, static_cast<const void*>(&lease), sizeof(lease));
  }
  const BlockLease next =
      *swapper_->Acquire(swapper_->plan().streamed_blocks()[1], Direction::kForward);
  const auto* const old = reinterpret_cast<const BlockLease*>(stolen);
  EXPECT_NE(old->generation(), next.generation());
  const absl::Status status = old->Get(0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stale lease"));
  EXPECT_TRUE(next.Get(0).ok());
}

}  // namespace
}  // namespace blockswap::offload
