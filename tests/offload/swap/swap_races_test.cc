// SPDX-License-Identifier: Apache-2.0
// The races other tools had, on devices that copy late or compute long: stale slots, early reuse,
// changes of mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/device/host_device.h"
#include "offload/device/simulated_device.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::IsEmpty;

constexpr int kBlocks = 8;

class SwapRacesTest : public ::testing::TestWithParam<TransferMode> {
 protected:
  SwapPlan MakePlan(int ring_size) {
    PlanRequest request = model_.request();
    request.constraints.mode = GetParam();
    request.constraints.blocks_to_swap = 6;
    request.constraints.ring_size = ring_size;
    return *Plan(request);
  }

  void RunStep(BlockSwapper& swapper, SimulatedDevice& device, absl::Duration compute) {
    ASSERT_TRUE(swapper.BeginPass(PassKind::kTraining).ok());
    for (int visit = 0; visit < 2 * kBlocks; ++visit) {
      const int block = visit < kBlocks ? visit : 2 * kBlocks - 1 - visit;
      absl::StatusOr<BlockLease> lease =
          swapper.Acquire(block, visit < kBlocks ? Direction::kForward : Direction::kBackward);
      ASSERT_TRUE(lease.ok()) << lease.status();
      const DeviceSpan span = *lease->Get(0);
      // Recompute, then backward: the block is read twice under one lease (F001, F13).
      ASSERT_TRUE(device.NoteComputeUse(span, compute).ok());
      ASSERT_TRUE(device.NoteComputeUse(span, 2 * compute).ok());
      EXPECT_EQ(span.data[0], model_.contents[static_cast<size_t>(block)][0]);
    }
  }

  // For every byte range: a write starts only after every earlier read of it has ended, and a read
  // after every earlier write. The log is in the order of the calls.
  static void CheckLog(const std::vector<SimulatedAccess>& log) {
    for (size_t later = 0; later < log.size(); ++later) {
      for (size_t earlier = 0; earlier < later; ++earlier) {
        const SimulatedAccess& a = log[earlier];
        const SimulatedAccess& b = log[later];
        if (a.kind == AccessKind::kRead && b.kind == AccessKind::kRead) continue;
        if (a.end <= b.begin || b.end <= a.begin) continue;
        ASSERT_GE(b.start, a.finish) << "access " << later << " does not wait for " << earlier;
      }
    }
  }

  FakeModel model_ = MakeUniformModel(kBlocks, 512);
};

// F001 and F002: the log of slot accesses shows no write before the last reader's event, with
// copies delayed and with compute delayed.
TEST_P(SwapRacesTest, NoSlotIsWrittenBeforeItsLastReaderIsPast) {
  const struct {
    absl::Duration copy, compute;
  } kDelays[] = {{absl::Milliseconds(5), absl::Microseconds(10)},
                 {absl::Microseconds(1), absl::Milliseconds(5)},
                 {absl::Milliseconds(1), absl::Milliseconds(1)}};
  for (const auto& delay : kDelays) {
    for (const int ring_size : {1, 2, 6}) {
      for (const bool host_follows : {false, true}) {
        SimulatedDevice device(
            {.latency = delay.copy, .jitter = 2.0, .host_follows_compute = host_follows});
        auto swapper =
            BlockSwapper::Create(&device, MakePlan(ring_size), model_.blocks, model_.reader());
        ASSERT_TRUE(swapper.ok()) << swapper.status();
        for (int step = 0; step < 3; ++step) RunStep(**swapper, device, delay.compute);
        EXPECT_THAT(device.violations(), IsEmpty());
        CheckLog(device.accesses());
      }
    }
  }
}

// The checker has to be able to say no: the same step on a trainer that reads after the lease has
// ended.
TEST_P(SwapRacesTest, AReadAfterTheLeaseIsFound) {
  SimulatedDevice device({.latency = absl::Microseconds(1)});
  auto swapper = *BlockSwapper::Create(&device, MakePlan(1), model_.blocks, model_.reader());
  ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
  int found = 0;
  for (int block = 0; block < kBlocks; ++block) {
    DeviceSpan span;
    {
      absl::StatusOr<BlockLease> lease = swapper->Acquire(block, Direction::kForward);
      ASSERT_TRUE(lease.ok()) << lease.status();
      span = *lease->Get(0);
    }
    found += !device.NoteComputeUse(span, absl::Milliseconds(1)).ok();
  }
  EXPECT_GE(found, 1);
  EXPECT_FALSE(device.violations().empty());
}

// F006: 100 changes between training and sampling at random points, with copies slower than
// compute.
TEST_P(SwapRacesTest, AChangeOfModeDrainsAndEveryBlockKeepsItsBytes) {
  const uint64_t seed = 20;
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  SimulatedDevice device({.seed = seed, .latency = absl::Milliseconds(3), .jitter = 1.0});
  auto swapper = *BlockSwapper::Create(&device, MakePlan(2), model_.blocks, model_.reader());
  PassKind kind = PassKind::kTraining;
  for (int flip = 0; flip < 100; ++flip) {
    kind = kind == PassKind::kTraining ? PassKind::kForwardOnly : PassKind::kTraining;
    const absl::Duration before = swapper->stats().h2d_busy;
    ASSERT_TRUE(swapper->BeginPass(kind).ok());
    // What was under way before has arrived; at most the loads that put the initial blocks back are
    // not.
    const int restored =
        static_cast<int>((swapper->stats().h2d_busy - before) / absl::Milliseconds(3));
    EXPECT_LE(swapper->stats().blocks_in_flight, restored);
    for (int block = 0; block < kBlocks; ++block) {
      std::vector<std::byte> bytes(512);
      ASSERT_TRUE(swapper->ReadBlock(block, absl::MakeSpan(bytes)).ok());
      ASSERT_EQ(bytes, model_.contents[static_cast<size_t>(block)]) << "flip " << flip;
    }
    const int visits = static_cast<int>(random() % (kind == PassKind::kTraining ? 17 : 9));
    for (int visit = 0; visit < visits; ++visit) {
      const int block = visit < kBlocks ? visit : 2 * kBlocks - 1 - visit;
      absl::StatusOr<BlockLease> lease =
          swapper->Acquire(block, visit < kBlocks ? Direction::kForward : Direction::kBackward);
      ASSERT_TRUE(lease.ok()) << lease.status();
      ASSERT_TRUE(device.NoteComputeUse(*lease->Get(0), absl::Microseconds(100)).ok());
      ASSERT_EQ(lease->Get(0)->data[0], model_.contents[static_cast<size_t>(block)][0]);
    }
  }
  EXPECT_THAT(device.violations(), IsEmpty());
}

// F005: after a sample, blocks are where a training step expects them, and the step costs what it
// always costs.
TEST_P(SwapRacesTest, SamplingBetweenStepsChangesNothingForTraining) {
  auto device = *HostDevice::Create({.latency = absl::Microseconds(100)});
  const SwapPlan plan = MakePlan(2);
  auto swapper = *BlockSwapper::Create(device.get(), plan, model_.blocks, model_.reader());
  const auto pass = [&](PassKind kind) {
    ASSERT_TRUE(swapper->BeginPass(kind).ok());
    const TransferSchedule& schedule =
        kind == PassKind::kTraining ? plan.training : plan.forward_only;
    for (size_t visit = 0; visit < schedule.visits.size(); ++visit) {
      absl::StatusOr<BlockLease> lease = swapper->Acquire(
          schedule.visits[visit], visit < kBlocks ? Direction::kForward : Direction::kBackward);
      ASSERT_TRUE(lease.ok()) << lease.status();
      ASSERT_EQ(lease->Get(0)->data[0], model_.contents[static_cast<size_t>(lease->block())][0]);
    }
  };
  for (int step = 0; step < 4; ++step) {
    const int64_t before = swapper->stats().h2d_transfers;
    pass(PassKind::kTraining);
    EXPECT_EQ(swapper->stats().h2d_transfers - before,
              static_cast<int64_t>(plan.training.transfers.size()));
    pass(PassKind::kForwardOnly);
    pass(PassKind::kForwardOnly);
  }
  EXPECT_EQ(swapper->stats().misses, 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, SwapRacesTest,
                         ::testing::Values(TransferMode::kH2dOnly, TransferMode::kExchange),
                         [](const auto& test) {
                           return std::string(TransferModeName(test.param));
                         });

}  // namespace
}  // namespace blockswap::offload
