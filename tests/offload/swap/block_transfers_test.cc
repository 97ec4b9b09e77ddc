// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/block_transfers.h"

#include <gtest/gtest.h>

#include <cstring>

#include "offload/device/device_arena.h"
#include "offload/device/host_device.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/lock_limit.h"

namespace blockswap::offload {
namespace {

constexpr int64_t kBytes = 16 * 4096;

// Three streamed blocks over `slots` slots of a host device that behaves like a card.
class BlockTransfersTest : public ::testing::Test {
 protected:
  void Start(const HostDeviceOptions& options, TransferMode mode, PinPolicy policy,
             int blocks_to_swap, int ring_size) {
    device_ = *HostDevice::Create(options);
    PlanRequest request = model_.request();
    request.constraints.mode = mode;
    request.constraints.pin_policy = policy;
    request.constraints.blocks_to_swap = blocks_to_swap;
    request.constraints.ring_size = ring_size;
    plan_ = *Plan(request);
    arena_ = *DeviceArena::Create(device_.get(), plan_.slots * kBytes, MemoryTag::kRing);
    for (int slot = 0; slot < plan_.slots; ++slot) {
      ring_.AddSlot({.memory = arena_.Sub(slot * kBytes, kBytes)});
    }
    transfers_ = *BlockTransfers::Create(device_.get(), plan_, &model_.blocks, &ring_);
    for (int block = 0; block < 3; ++block) {
      if (std::byte* home = transfers_->HostData(block); home != nullptr) {
        ASSERT_TRUE(model_.reader()(block, absl::MakeSpan(home, kBytes)).ok());
      }
    }
  }
  bool SlotHolds(int slot, int block) {
    return std::memcmp(ring_.slot(slot).memory.data,
                       model_.contents[static_cast<size_t>(block)].data(), kBytes) == 0;
  }

  FakeModel model_ = MakeUniformModel(3, kBytes);
  std::unique_ptr<HostDevice> device_;
  SwapPlan plan_;
  DeviceArena arena_;
  SlotRing ring_{3};
  std::unique_ptr<BlockTransfers> transfers_;
};

TEST_F(BlockTransfersTest, ComputeSeesTheBlockAfterItsWait) {
  Start({.latency = absl::Milliseconds(1)}, TransferMode::kH2dOnly, PinPolicy::kNever, 3, 2);
  ASSERT_TRUE(transfers_->Load(1, 0).ok());
  ASSERT_TRUE(transfers_->AwaitOnCompute(0).ok());
  EXPECT_TRUE(transfers_->IsReady(0));
  EXPECT_TRUE(SlotHolds(0, 1));
  EXPECT_EQ(transfers_->counters().h2d_bytes, kBytes);
  EXPECT_EQ(transfers_->counters().staged_transfers, 0);
}

// A pinned block is copied by the trainer's thread, a pageable one by the staging thread. Both into
// one slot, while the staging thread still waits for its buffer, must arrive in the order they were
// asked for.
TEST_F(BlockTransfersTest, ADirectLoadDoesNotOvertakeAStagedOneIntoTheSameSlot) {
  const ScopedLockLimit limit(kBytes + kBytes + 4096);  // one master, one staging buffer
  ASSERT_TRUE(limit.active());
  for (int round = 0; round < 3; ++round) {
    transfers_.reset();
    ring_ = SlotRing(3);
    arena_ = DeviceArena();
    Start({.latency = absl::Milliseconds(10), .copies_need_pinned_memory = true},
          TransferMode::kH2dOnly, PinPolicy::kAuto, 3, 1);
    ASSERT_EQ(transfers_->locked_bytes(), 2 * kBytes);
    ASSERT_TRUE(transfers_->Load(1, 0).ok());
    ASSERT_TRUE(transfers_->Load(2, 0).ok());  // its staging buffer is busy with block 1
    ASSERT_TRUE(transfers_->Load(0, 0).ok());  // pinned: no staging
    ASSERT_TRUE(transfers_->AwaitOnCompute(0).ok());
    ASSERT_TRUE(transfers_->Drain().ok());
    EXPECT_TRUE(SlotHolds(0, 0));
    EXPECT_EQ(transfers_->counters().staged_transfers, 2);
  }
}

TEST_F(BlockTransfersTest, ExchangeMovesHomesBetweenBuffers) {
  Start({}, TransferMode::kExchange, PinPolicy::kNever, 2, 2);
  EXPECT_EQ(transfers_->HostData(0), nullptr);
  std::byte* const home_of_1 = transfers_->HostData(1);
  ring_.Assign(0, 0);
  ASSERT_TRUE(model_.reader()(0, absl::MakeSpan(ring_.slot(0).memory.data, kBytes)).ok());
  ASSERT_TRUE(transfers_->Load(1, 0).ok());
  ASSERT_TRUE(transfers_->Drain().ok());
  EXPECT_TRUE(SlotHolds(0, 1));
  EXPECT_EQ(transfers_->HostData(1), nullptr);
  ASSERT_NE(transfers_->HostData(0), nullptr);
  EXPECT_EQ(std::memcmp(transfers_->HostData(0), model_.contents[0].data(), kBytes), 0);
  ASSERT_TRUE(transfers_->Load(2, 0).ok());
  ASSERT_TRUE(transfers_->Drain().ok());
  ASSERT_NE(transfers_->HostData(1), nullptr);
  EXPECT_NE(transfers_->HostData(1), home_of_1);  // the spare buffer comes first
  EXPECT_EQ(std::memcmp(transfers_->HostData(1), model_.contents[1].data(), kBytes), 0);
  ASSERT_TRUE(transfers_->Load(0, 0).ok());
  ASSERT_TRUE(transfers_->Drain().ok());
  EXPECT_EQ(transfers_->HostData(2), home_of_1);  // which block 1 had left
  EXPECT_EQ(transfers_->counters().d2h_bytes, 3 * kBytes);
}

TEST_F(BlockTransfersTest, HostMemoryIsTheMastersAndNothingElse) {
  Start({}, TransferMode::kH2dOnly, PinPolicy::kAuto, 3, 2);
  EXPECT_EQ(transfers_->host_bytes(), 3 * kBytes);
  EXPECT_EQ(transfers_->locked_bytes(), 3 * kBytes);
}

}  // namespace
}  // namespace blockswap::offload
