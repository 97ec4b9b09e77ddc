// SPDX-License-Identifier: Apache-2.0
// What happens when memory or the device fails: at every allocation and at every call, one after
// the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "offload/device/simulated_device.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

using ::testing::HasSubstr;

enum class Fault { kArena, kEvent, kLock, kCopy, kRecord, kWait };

class SwapFaultsTest : public ::testing::TestWithParam<TransferMode> {
 protected:
  SwapFaultsTest() {
    PlanRequest request = model_.request();
    request.constraints.mode = GetParam();
    request.constraints.blocks_to_swap = 4;
    request.constraints.pin_policy = PinPolicy::kRequired;
    plan_ = *Plan(request);
  }

  static SimulatedFailures FailAt(Fault fault, int ordinal, bool asynchronous = false) {
    SimulatedFailures failures{.asynchronous = asynchronous};
    int* const ordinals[] = {&failures.arena, &failures.event,  &failures.lock,
                             &failures.copy,  &failures.record, &failures.wait};
    *ordinals[static_cast<int>(fault)] = ordinal;
    return failures;
  }

  absl::StatusOr<std::unique_ptr<BlockSwapper>> Create(SimulatedDevice* device) {
    return BlockSwapper::Create(device, plan_, model_.blocks, model_.reader());
  }

  // One training step and a sample; the first error ends it.
  absl::Status Run(BlockSwapper& swapper) {
    for (const PassKind kind : {PassKind::kTraining, PassKind::kForwardOnly}) {
      absl::Status status = swapper.BeginPass(kind);
      const TransferSchedule& schedule =
          kind == PassKind::kTraining ? plan_.training : plan_.forward_only;
      for (size_t visit = 0; status.ok() && visit < schedule.visits.size(); ++visit) {
        status = swapper
                     .Acquire(schedule.visits[visit],
                              visit < 6 ? Direction::kForward : Direction::kBackward)
                     .status();
      }
      if (!status.ok()) return status;
    }
    return swapper.Drain();
  }

  FakeModel model_ = MakeUniformModel(6, 512);
  SwapPlan plan_;
};

TEST_P(SwapFaultsTest, OutOfMemoryAtEachAllocationLeavesNothingBehind) {
  for (const Fault fault : {Fault::kArena, Fault::kEvent, Fault::kLock}) {
    int failed = 0;
    for (int ordinal = 1;; ++ordinal) {
      SCOPED_TRACE(absl::StrCat("fault ", static_cast<int>(fault), " at ", ordinal));
      SimulatedDevice device({.failures = FailAt(fault, ordinal)});
      const absl::StatusOr<std::unique_ptr<BlockSwapper>> swapper = Create(&device);
      if (swapper.ok()) break;
      ++failed;
      EXPECT_EQ(swapper.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(device.ledger().Snapshot().total_bytes, 0);
      EXPECT_EQ(device.LockHostMemory(nullptr, int64_t{1} << 40), absl::OkStatus());
    }
    EXPECT_GE(failed, 1);
  }
}

TEST_P(SwapFaultsTest, AnErrorAtEachCallIsReportedOnceAndKept) {
  for (const bool asynchronous : {false, true}) {
    for (const Fault fault : {Fault::kCopy, Fault::kRecord, Fault::kWait}) {
      int failed = 0;
      for (int ordinal = 1; ordinal < 10000; ++ordinal) {
        SCOPED_TRACE(absl::StrCat("fault ", static_cast<int>(fault), " at ", ordinal));
        SimulatedDevice device({.failures = FailAt(fault, ordinal, asynchronous)});
        absl::StatusOr<std::unique_ptr<BlockSwapper>> swapper = Create(&device);
        if (!swapper.ok()) {
          EXPECT_THAT(std::string(swapper.status().message()), HasSubstr("failed"));
          EXPECT_EQ(device.ledger().Snapshot().total_bytes, 0);
          ++failed;
          continue;
        }
        const absl::Status status = Run(**swapper);
        if (!device.failed()) {
          EXPECT_TRUE(status.ok()) << status;
          break;
        }
        ++failed;
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
        EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(ordinal, " failed")));
        EXPECT_EQ((*swapper)->Acquire(0, Direction::kForward).status(), status);
        EXPECT_EQ((*swapper)->BeginPass(PassKind::kTraining), status);
        swapper->reset();
        EXPECT_EQ(device.ledger().Snapshot().total_bytes, 0);
      }
      EXPECT_GE(failed, 4);
    }
  }
}

TEST_P(SwapFaultsTest, AFailureUnderALeaseIsReportedByTheNextAcquire) {
  SimulatedDevice probe(SimulatedDeviceOptions{});
  ASSERT_TRUE(Create(&probe).ok());
  // The first record after Create belongs to the end of a lease.
  SimulatedDevice device({.failures = FailAt(Fault::kRecord, probe.calls().record + 1)});
  auto swapper = *Create(&device);
  const int block = GetParam() == TransferMode::kExchange ? 0 : plan_.streamed_blocks()[0];
  {
    absl::StatusOr<BlockLease> lease = swapper->Acquire(block, Direction::kForward);
    ASSERT_TRUE(lease.ok()) << lease.status();
  }
  EXPECT_EQ(swapper->Acquire(block, Direction::kForward).status().code(),
            absl::StatusCode::kInternal);
}

INSTANTIATE_TEST_SUITE_P(Modes, SwapFaultsTest,
                         ::testing::Values(TransferMode::kH2dOnly, TransferMode::kExchange),
                         [](const auto& test) {
                           return std::string(TransferModeName(test.param));
                         });

}  // namespace
}  // namespace blockswap::offload
