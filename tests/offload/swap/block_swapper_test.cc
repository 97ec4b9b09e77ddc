// SPDX-License-Identifier: Apache-2.0
#include "offload/swap/block_swapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "offload/device/host_device.h"
#include "offload/device/host_memory.h"
#include "offload/device/simulated_device.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBytes = 4096;

struct Settings {
  TransferMode mode = TransferMode::kH2dOnly;
  int blocks_to_swap = 0;
  int ring_size = 2;
  PinPolicy policy = PinPolicy::kNever;
};

SwapPlan MakePlan(const FakeModel& model, const Settings& settings) {
  PlanRequest request = model.request();
  request.constraints.mode = settings.mode;
  request.constraints.blocks_to_swap = settings.blocks_to_swap;
  request.constraints.ring_size = settings.ring_size;
  request.constraints.pin_policy = settings.policy;
  return *Plan(request);
}

class BlockSwapperTest : public ::testing::Test {
 protected:
  void Start(const Settings& settings, const HostDeviceOptions& options = {}) {
    swapper_.reset();
    device_ = *HostDevice::Create(options);
    absl::StatusOr<std::unique_ptr<BlockSwapper>> swapper = BlockSwapper::Create(
        device_.get(), MakePlan(model_, settings), model_.blocks, model_.reader());
    ASSERT_TRUE(swapper.ok()) << swapper.status();
    swapper_ = *std::move(swapper);
  }
  void Visit(int block, Direction direction) {
    absl::StatusOr<BlockLease> lease = swapper_->Acquire(block, direction);
    ASSERT_TRUE(lease.ok()) << lease.status();
    const DeviceSpan span = *lease->Get(0);
    EXPECT_EQ(std::memcmp(span.data, model_.contents[static_cast<size_t>(block)].data(), kBytes), 0)
        << "block " << block;
  }
  void Step() {
    ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
    for (int block = 0; block < 8; ++block) Visit(block, Direction::kForward);
    for (int block = 7; block >= 0; --block) Visit(block, Direction::kBackward);
  }
  void Sample() {
    ASSERT_TRUE(swapper_->BeginPass(PassKind::kForwardOnly).ok());
    for (int block = 0; block < 8; ++block) Visit(block, Direction::kForward);
  }

  FakeModel model_ = MakeUniformModel(8, kBytes);
  std::unique_ptr<HostDevice> device_;
  std::unique_ptr<BlockSwapper> swapper_;
};

TEST_F(BlockSwapperTest, TrainsAndSamplesWithEverySettingWithoutAMiss) {
  for (const bool staged : {false, true}) {
    for (const TransferMode mode : {TransferMode::kH2dOnly, TransferMode::kExchange}) {
      for (int blocks_to_swap = 0; blocks_to_swap <= 7; ++blocks_to_swap) {
        for (const int ring_size : {1, 2, 5}) {
          Start({mode, blocks_to_swap, ring_size, PinPolicy::kNever},
                {.copies_need_pinned_memory = staged});
          for (int step = 0; step < 2; ++step) {
            Step();
            Sample();
          }
          EXPECT_EQ(swapper_->stats().misses, 0);
          EXPECT_EQ(swapper_->stats().staged_transfers,
                    staged ? swapper_->stats().h2d_transfers : 0);
        }
      }
    }
  }
}

TEST_F(BlockSwapperTest, AStepMovesTwoTimesStreamedMinusRingBlocksAndNothingBack) {
  Start({TransferMode::kH2dOnly, 5, 2});
  Step();
  const SwapStats before = swapper_->stats();
  Step();
  const SwapStats after = swapper_->stats();
  EXPECT_EQ(after.h2d_bytes - before.h2d_bytes, (2 * 5 - 2 * 2) * kBytes);
  // Nothing but blocks went up: the device counts the same.
  EXPECT_EQ(after.h2d_link_bytes - before.h2d_link_bytes, after.h2d_bytes - before.h2d_bytes);
  EXPECT_EQ(after.h2d_transfers - before.h2d_transfers, 6);
  EXPECT_EQ(after.d2h_bytes, 0);
  EXPECT_EQ(after.hits + after.late - before.hits - before.late, 10);
  EXPECT_EQ(device_->copies(CopyDirection::kDeviceToHost).bytes, 0);
}

TEST_F(BlockSwapperTest, DeviceMemoryIsChargedToTheByteAndGivenBack) {
  Start({TransferMode::kH2dOnly, 5, 2});
  const MemorySnapshot snapshot = device_->ledger().Snapshot();
  EXPECT_EQ(snapshot.current_bytes[static_cast<size_t>(MemoryTag::kRing)], 2 * kBytes);
  EXPECT_EQ(snapshot.current_bytes[static_cast<size_t>(MemoryTag::kResidentBlocks)], 3 * kBytes);
  EXPECT_EQ(snapshot.total_bytes, swapper_->plan().prediction.device_bytes);
  EXPECT_EQ(swapper_->stats().device_weight_bytes, 5 * kBytes);
  EXPECT_EQ(swapper_->stats().host_master_bytes, 5 * kBytes);
  Step();
  Sample();
  EXPECT_EQ(device_->ledger().Snapshot().total_peak_bytes, 5 * kBytes);
  swapper_.reset();
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes, 0);
}

TEST_F(BlockSwapperTest, LockedBytesAreReportedInWholePages) {
  Start({TransferMode::kH2dOnly, 5, 2, PinPolicy::kRequired});
  EXPECT_EQ(swapper_->stats().pinned_bytes, PageCeil(5 * kBytes));
  // What the plan promised, to a page (F058).
  EXPECT_EQ(swapper_->stats().pinned_bytes, PageCeil(swapper_->plan().prediction.pinned_bytes));
}

TEST_F(BlockSwapperTest, StatsSayWhereTheBlocksAre) {
  Start({TransferMode::kH2dOnly, 5, 2});
  ASSERT_TRUE(swapper_->Drain().ok());
  EXPECT_EQ(swapper_->stats().blocks_on_device, 3 + 2);
  EXPECT_EQ(swapper_->stats().blocks_on_host, 3);
  EXPECT_EQ(swapper_->stats().blocks_in_flight, 0);
  Start({TransferMode::kH2dOnly, 5, 2}, {.latency = absl::Milliseconds(200)});
  EXPECT_EQ(swapper_->stats().blocks_in_flight, 2);
  Visit(0, Direction::kForward);
  EXPECT_GE(swapper_->stats().late, 1);
  EXPECT_GT(swapper_->stats().forward_stall, absl::ZeroDuration());
  EXPECT_EQ(swapper_->stats().backward_stall, absl::ZeroDuration());
}

TEST_F(BlockSwapperTest, AnUnplannedVisitIsAMissAndThePlanGoesOn) {
  Start({TransferMode::kH2dOnly, 8, 2});
  ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
  Visit(0, Direction::kForward);
  Visit(6, Direction::kForward);  // far ahead
  Visit(1, Direction::kForward);  // and back
  EXPECT_GE(swapper_->stats().misses, 1);
  const int64_t misses = swapper_->stats().misses;
  Step();
  Step();
  EXPECT_LE(swapper_->stats().misses - misses, 2);
}

TEST_F(BlockSwapperTest, ASkippedBlockDoesNotBreakThePrefetch) {
  Start({TransferMode::kH2dOnly, 8, 2});
  ASSERT_TRUE(swapper_->BeginPass(PassKind::kForwardOnly).ok());
  for (int block = 0; block < 8; ++block) {
    if (block != 3) Visit(block, Direction::kForward);
  }
  EXPECT_EQ(swapper_->stats().misses, 0);
}

TEST_F(BlockSwapperTest, ABrokenOffPassIsRepairedByTheNext) {
  for (const TransferMode mode : {TransferMode::kH2dOnly, TransferMode::kExchange}) {
    Start({mode, 6, 2});
    ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
    for (int block = 0; block < 5; ++block) Visit(block, Direction::kForward);
    Step();
    EXPECT_EQ(swapper_->stats().misses, 0);
  }
}

TEST_F(BlockSwapperTest, ALeasedSlotIsKeptAndAllSlotsLeasedIsAnError) {
  Start({TransferMode::kH2dOnly, 8, 2});
  BlockLease first = *swapper_->Acquire(0, Direction::kForward);
  BlockLease second = *swapper_->Acquire(1, Direction::kForward);
  const absl::Status refused = swapper_->Acquire(2, Direction::kForward).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2 leases, 2 slots"));
  EXPECT_EQ(std::memcmp(first.Get(0)->data, model_.contents[0].data(), kBytes), 0);
  first.Release();
  Visit(2, Direction::kForward);  // not sticky
  EXPECT_EQ(std::memcmp(second.Get(0)->data, model_.contents[1].data(), kBytes), 0);
}

TEST_F(BlockSwapperTest, APassCannotBeginUnderALease) {
  Start({TransferMode::kH2dOnly, 8, 2});
  const BlockLease lease = *swapper_->Acquire(0, Direction::kForward);
  EXPECT_EQ(swapper_->BeginPass(PassKind::kTraining).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(BlockSwapperTest, TrainedWeightsComeBackInExchangeMode) {
  Start({TransferMode::kExchange, 6, 2}, {.latency = absl::Microseconds(200)});
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
    for (int block = 0; block < 8; ++block) Visit(block, Direction::kForward);
    for (int block = 7; block >= 0; --block) {
      absl::StatusOr<BlockLease> lease = swapper_->Acquire(block, Direction::kBackward);
      ASSERT_TRUE(lease.ok()) << lease.status();
      std::byte& weight = lease->Get(0)->data[static_cast<size_t>(step)];
      weight = static_cast<std::byte>(static_cast<int>(weight) + 1);
      model_.contents[static_cast<size_t>(block)][static_cast<size_t>(step)] = weight;
    }
  }
  for (int block = 0; block < 8; ++block) {
    std::vector<std::byte> bytes(kBytes);
    ASSERT_TRUE(swapper_->ReadBlock(block, absl::MakeSpan(bytes)).ok());
    EXPECT_EQ(bytes, model_.contents[static_cast<size_t>(block)]);
  }
}

TEST_F(BlockSwapperTest, ReadBlockRefusesAWrongSizeAndAnUnknownBlock) {
  Start({TransferMode::kH2dOnly, 4, 2});
  std::vector<std::byte> bytes(kBytes - 1);
  EXPECT_EQ(swapper_->ReadBlock(0, absl::MakeSpan(bytes)).code(),
            absl::StatusCode::kInvalidArgument);
  bytes.resize(kBytes);
  EXPECT_EQ(swapper_->ReadBlock(8, absl::MakeSpan(bytes)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(swapper_->Acquire(-1, Direction::kForward).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(BlockSwapperTest, EachBlockIsReadOnceStraightIntoItsPackedSize) {
  std::vector<int> reads(8, 0);
  device_ = *HostDevice::Create({});
  const BlockReader counting = [&](int block, absl::Span<std::byte> destination) {
    ++reads[static_cast<size_t>(block)];
    return model_.reader()(block, destination);
  };
  swapper_ = *BlockSwapper::Create(device_.get(), MakePlan(model_, {TransferMode::kH2dOnly, 5, 2}),
                                   model_.blocks, counting);
  EXPECT_EQ(reads, std::vector<int>(8, 1));
}

TEST_F(BlockSwapperTest, AReaderThatFailsFailsCreateAndLeavesNothing) {
  device_ = *HostDevice::Create({});
  for (int failing = 0; failing < 8; ++failing) {
    const BlockReader reader = [&](int block, absl::Span<std::byte> destination) {
      if (block == failing) return absl::DataLossError("file cut short");
      return model_.reader()(block, destination);
    };
    const absl::Status status =
        BlockSwapper::Create(device_.get(), MakePlan(model_, {TransferMode::kH2dOnly, 5, 2}),
                             model_.blocks, reader)
            .status();
    EXPECT_EQ(status, absl::DataLossError("file cut short"));
    EXPECT_EQ(device_->ledger().Snapshot().total_bytes, 0);
  }
}

TEST_F(BlockSwapperTest, APlanForAnotherModelIsRefused) {
  device_ = *HostDevice::Create({});
  FakeModel other = MakeUniformModel(7, kBytes);
  EXPECT_EQ(BlockSwapper::Create(device_.get(), MakePlan(model_, {}), other.blocks, other.reader())
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(BlockSwapperTest, TooSmallABudgetIsOutOfMemoryNotACrash) {
  device_ = *HostDevice::Create({.budget_bytes = 4 * kBytes});
  const absl::Status status =
      BlockSwapper::Create(device_.get(), MakePlan(model_, {TransferMode::kH2dOnly, 5, 2}),
                           model_.blocks, model_.reader())
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes, 0);
}

// Without a second spare buffer a block on its way down would wait for the one that came up last:
// the copies of a step would take the time of both directions together.
TEST(BlockSwapperExchangeTest, BlocksGoDownWhileOthersComeUp) {
  const FakeModel model = MakeUniformModel(12, 100'000);
  SimulatedDeviceOptions options;
  options.h2d_bytes_per_second = options.d2h_bytes_per_second = 1e9;  // 0.1 ms a block
  options.latency = absl::ZeroDuration();
  SimulatedDevice device(options);
  const SwapPlan plan = MakePlan(
      model, {.mode = TransferMode::kExchange, .blocks_to_swap = 6, .policy = PinPolicy::kAuto});
  const auto swapper = *BlockSwapper::Create(&device, plan, model.blocks, model.reader());
  const auto step = [&] {
    ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
    for (size_t visit = 0; visit < plan.training.visits.size(); ++visit) {
      const int block = plan.training.visits[visit];
      const BlockLease lease = *swapper->Acquire(
          block, visit < model.blocks.size() ? Direction::kForward : Direction::kBackward);
      ASSERT_TRUE(device.NoteComputeUse(*lease.Get(0), absl::Microseconds(20)).ok());
    }
  };
  step();
  const absl::Duration begin = device.compute_time();
  const SwapStats before = swapper->stats();
  for (int i = 0; i < 3; ++i) step();
  const SwapStats after = swapper->stats();
  const absl::Duration copies =
      (after.h2d_busy - before.h2d_busy) + (after.d2h_busy - before.d2h_busy);
  EXPECT_GT(copies, absl::Milliseconds(6));
  EXPECT_LT(device.compute_time() - begin, 0.7 * copies);
  EXPECT_TRUE(device.violations().empty()) << device.violations().front();
}

}  // namespace
}  // namespace blockswap::offload
