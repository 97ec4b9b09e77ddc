// SPDX-License-Identifier: Apache-2.0
// Masters of a base that trains: changed on the host, loaded again, never written back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "offload/device/host_device.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/fake_plan.h"

namespace blockswap::offload {
namespace {

using ::testing::HasSubstr;

constexpr int kBlocks = 6;
constexpr int64_t kBytes = 1024;

class MutableMasterTest : public ::testing::Test {
 protected:
  void Start(int streamed, int ring_size, const HostDeviceOptions& options = {}) {
    swapper_.reset();
    device_ = *HostDevice::Create(options);
    SwapPlan plan = MakeEvenRingPlan(model_.blocks, streamed, ring_size);
    plan.base_trains = true;
    absl::StatusOr<std::unique_ptr<BlockSwapper>> swapper =
        BlockSwapper::Create(device_.get(), plan, model_.blocks, model_.reader());
    ASSERT_TRUE(swapper.ok()) << swapper.status();
    swapper_ = *std::move(swapper);
  }
  void Visit(int block, Direction direction) {
    absl::StatusOr<BlockLease> lease = swapper_->Acquire(block, direction);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_EQ(std::memcmp(lease->Get(0)->data, model_.contents[static_cast<size_t>(block)].data(),
                          kBytes),
              0)
        << "block " << block;
  }
  void Change(int block) {
    absl::StatusOr<absl::Span<std::byte>> master = swapper_->MutableMaster(block);
    ASSERT_TRUE(master.ok()) << master.status();
    for (size_t i = 0; i < master->size(); ++i) {
      (*master)[i] ^= std::byte{0x11};
      model_.contents[static_cast<size_t>(block)][i] ^= std::byte{0x11};
    }
    ASSERT_TRUE(swapper_->MasterChanged(block).ok());
  }

  FakeModel model_ = MakeUniformModel(kBlocks, kBytes);
  std::unique_ptr<HostDevice> device_;
  std::unique_ptr<BlockSwapper> swapper_;
};

TEST_F(MutableMasterTest, EveryStepSeesTheBytesOfTheStepBefore) {
  for (const bool staged : {false, true}) {
    for (int streamed = 0; streamed <= kBlocks; ++streamed) {
      for (const int ring_size : {1, 2}) {
        Start(streamed, ring_size,
              {.latency = absl::Microseconds(50), .copies_need_pinned_memory = staged});
        for (int step = 0; step < 3; ++step) {
          ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
          for (int block = 0; block < kBlocks; ++block) Visit(block, Direction::kForward);
          for (int block = kBlocks - 1; block >= 0; --block) {
            Visit(block, Direction::kBackward);
            Change(block);
          }
        }
        EXPECT_EQ(swapper_->stats().misses, 0);
        EXPECT_EQ(device_->copies(CopyDirection::kDeviceToHost).bytes, 0);
        EXPECT_EQ(swapper_->stats().host_master_bytes, kBlocks * kBytes);
      }
    }
  }
}

// What is in a slot at the end of a step is needed first by the next one, and must not be the old
// bytes: it comes up again, and nothing else does.
TEST_F(MutableMasterTest, AChangeAfterTheStepLoadsResidentsAndSlotsOnceEach) {
  Start(/*streamed=*/4, /*ring_size=*/2);
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
    for (int block = 0; block < kBlocks; ++block) Visit(block, Direction::kForward);
    for (int block = kBlocks - 1; block >= 0; --block) Visit(block, Direction::kBackward);
    const int64_t before = swapper_->stats().h2d_transfers;
    for (int block = 0; block < kBlocks; ++block) Change(block);
    EXPECT_EQ(swapper_->stats().h2d_transfers - before, 2 + 2);  // residents, slots
  }
  EXPECT_EQ(swapper_->stats().misses, 0);
}

TEST_F(MutableMasterTest, ABlockIsNotToBeHadWhileItsMasterChanges) {
  Start(/*streamed=*/4, /*ring_size=*/2);
  ASSERT_TRUE(swapper_->MutableMaster(1).ok());
  const absl::Status refused = swapper_->Acquire(1, Direction::kForward).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("being changed"));
  ASSERT_TRUE(swapper_->MasterChanged(1).ok());
  Visit(1, Direction::kForward);
}

// The transfer of a block whose master is still being changed waits for the change, not for a miss.
TEST_F(MutableMasterTest, APrefetchThatCameTooEarlyIsMadeUpFor) {
  Start(/*streamed=*/6, /*ring_size=*/1);
  ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
  absl::StatusOr<absl::Span<std::byte>> master = swapper_->MutableMaster(1);
  ASSERT_TRUE(master.ok());
  Visit(0, Direction::kForward);  // its end would load block 1
  EXPECT_EQ(swapper_->stats().h2d_transfers, 1);
  (*master)[0] = model_.contents[1][0] = std::byte{0x7E};
  ASSERT_TRUE(swapper_->MasterChanged(1).ok());
  EXPECT_EQ(swapper_->stats().h2d_transfers, 2);
  Visit(1, Direction::kForward);
  EXPECT_EQ(swapper_->stats().misses, 0);
}

TEST_F(MutableMasterTest, AMasterIsGivenOutOnlyOnceNoCopyReadsIt) {
  Start(/*streamed=*/6, /*ring_size=*/2, {.latency = absl::Milliseconds(40)});
  ASSERT_EQ(swapper_->stats().blocks_in_flight, 2);
  ASSERT_TRUE(swapper_->MutableMaster(0).ok());
  EXPECT_LE(swapper_->stats().blocks_in_flight, 1);  // its own copy has arrived
  ASSERT_TRUE(swapper_->MasterChanged(0).ok());
  EXPECT_GE(swapper_->stats().blocks_in_flight, 1);  // and comes again
}

TEST_F(MutableMasterTest, MisuseIsRefused) {
  Start(/*streamed=*/4, /*ring_size=*/2);
  EXPECT_EQ(swapper_->MutableMaster(kBlocks).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(swapper_->MasterChanged(0).code(), absl::StatusCode::kFailedPrecondition);
  {
    const BlockLease lease = *swapper_->Acquire(0, Direction::kForward);
    EXPECT_EQ(swapper_->MutableMaster(0).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  auto frozen = *BlockSwapper::Create(device_.get(), MakeEvenRingPlan(model_.blocks, 4, 2),
                                      model_.blocks, model_.reader());
  EXPECT_EQ(frozen->MutableMaster(0).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace blockswap::offload
