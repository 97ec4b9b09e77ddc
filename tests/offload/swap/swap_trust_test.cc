// SPDX-License-Identifier: Apache-2.0
// What a long run does to a swapper: nothing grows, and whatever a step was cut short by, the next
// one is right. For whole blocks, for layers, and for a base that trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "offload/device/host_device.h"
#include "offload/device/simulated_device.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/fake_plan.h"

namespace blockswap::offload {
namespace {

using ::testing::IsEmpty;

constexpr int kBlocks = 5;

enum class Kind { kRing, kLayers, kTrained };

std::ptrdiff_t NumThreads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

std::string KindName(const ::testing::TestParamInfo<Kind>& test) {
  const char* const names[] = {"ring", "layers", "trained"};
  return names[static_cast<int>(test.param)];
}

class SwapTrustTest : public ::testing::TestWithParam<Kind> {
 protected:
  SwapTrustTest() {
    std::mt19937_64 random(23);
    model_ = MakeLayeredModel(random, kBlocks, 3, 600, /*alike=*/true);
    plan_ = GetParam() == Kind::kLayers
                ? MakeLayerPlan(model_.blocks, {0, 1, 3, 4}, PinPolicy::kRequired)
                : MakeRingPlan(model_.blocks, {0, 1, 3, 4}, 2, PinPolicy::kRequired);
    plan_.base_trains = GetParam() == Kind::kTrained;
  }
  // REQUIRES: no swapper.
  SimulatedDevice& UseSimulated(const SimulatedDeviceOptions& options) {
    simulated_ = std::make_unique<SimulatedDevice>(options);
    return *simulated_;
  }
  void Start(DeviceRuntime* device) {
    auto swapper = BlockSwapper::Create(device, plan_, model_.blocks, model_.reader());
    ASSERT_TRUE(swapper.ok()) << swapper.status();
    swapper_ = *std::move(swapper);
  }
  const BlockProfile& profile(int block) const { return model_.blocks[static_cast<size_t>(block)]; }

  absl::Status Visit(int block, Direction direction) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const BlockLease lease, swapper_->Acquire(block, direction));
    for (int index : direction == Direction::kForward ? profile(block).forward_layers
                                                      : profile(block).backward_layers) {
      const int tensor = profile(block).layers[static_cast<size_t>(index)].tensors[0];
      BLOCKSWAP_ASSIGN_OR_RETURN(const TensorLease held, lease.Hold(tensor));
      if (simulated_ != nullptr) {
        BLOCKSWAP_RETURN_IF_ERROR(simulated_->CheckRead(held.span()));
        if (simulated_->failed()) continue;
      }
      const int64_t offset = profile(block).tensors[static_cast<size_t>(tensor)].offset;
      EXPECT_EQ(
          std::memcmp(held.span().data, model_.contents[static_cast<size_t>(block)].data() + offset,
                      static_cast<size_t>(held.span().bytes)),
          0)
          << "block " << block;
    }
    return absl::OkStatus();
  }
  // The first `visits` of a step; every block is changed after its backward where the base trains.
  absl::Status Step(int visits = 2 * kBlocks) {
    BLOCKSWAP_RETURN_IF_ERROR(swapper_->BeginPass(PassKind::kTraining));
    for (int visit = 0; visit < visits; ++visit) {
      const bool backward = visit >= kBlocks;
      const int block = backward ? 2 * kBlocks - 1 - visit : visit;
      BLOCKSWAP_RETURN_IF_ERROR(
          Visit(block, backward ? Direction::kBackward : Direction::kForward));
      if (!backward || GetParam() != Kind::kTrained) continue;
      BLOCKSWAP_ASSIGN_OR_RETURN(const absl::Span<std::byte> master,
                                 swapper_->MutableMaster(block));
      master[0] ^= std::byte{1};
      model_.contents[static_cast<size_t>(block)][0] ^= std::byte{1};
      BLOCKSWAP_RETURN_IF_ERROR(swapper_->MasterChanged(block));
    }
    return absl::OkStatus();
  }

  FakeModel model_;
  SwapPlan plan_;
  std::unique_ptr<SimulatedDevice> simulated_;
  std::unique_ptr<HostDevice> host_;
  std::unique_ptr<BlockSwapper> swapper_;
};

TEST_P(SwapTrustTest, TenThousandStepsTakeNothingThatTheFirstDidNot) {
  SimulatedDevice& device = UseSimulated({.copies_need_pinned_memory = true});
  Start(&device);
  ASSERT_TRUE(Step().ok());
  const SimulatedFailures first = device.calls();
  const int64_t bytes = device.ledger().Snapshot().total_peak_bytes;
  for (int step = 0; step < 10000; ++step) ASSERT_TRUE(Step().ok());
  const SimulatedFailures last = device.calls();
  EXPECT_EQ(last.arena, first.arena);
  EXPECT_EQ(last.event, first.event);
  EXPECT_EQ(last.lock, first.lock);
  EXPECT_EQ(device.ledger().Snapshot().total_peak_bytes, bytes);
  EXPECT_EQ(swapper_->stats().misses, 0);
  EXPECT_THAT(device.violations(), IsEmpty());
}

TEST_P(SwapTrustTest, AThousandStepsOnTheHostDeviceStartNoThread) {
  host_ = *HostDevice::Create({.copies_need_pinned_memory = true});
  HostDevice* const device = host_.get();
  plan_.pin_policy = PinPolicy::kNever;  // through the staging thread
  Start(device);
  ASSERT_TRUE(Step().ok());
  const auto threads = NumThreads();
  const int64_t bytes = device->ledger().Snapshot().total_bytes;
  for (int step = 0; step < 1000; ++step) ASSERT_TRUE(Step().ok());
  EXPECT_EQ(NumThreads(), threads);
  EXPECT_EQ(device->ledger().Snapshot().total_bytes, bytes);
  EXPECT_EQ(device->ledger().Snapshot().total_peak_bytes, bytes);
}

TEST_P(SwapTrustTest, AStepCutShortAnywhereIsFollowedByARightOne) {
  for (int visits = 0; visits < 2 * kBlocks; ++visits) {
    SCOPED_TRACE(absl::StrCat("after ", visits, " visits"));
    SimulatedDevice& device = UseSimulated({.latency = absl::Microseconds(30), .jitter = 1.0});
    Start(&device);
    ASSERT_TRUE(Step(visits).ok());
    ASSERT_TRUE(Step().ok());
    EXPECT_EQ(swapper_->stats().misses, 0);
    EXPECT_THAT(device.violations(), IsEmpty());
    swapper_.reset();
  }
}

TEST_P(SwapTrustTest, TwoForwardsBeforeOneBackwardAreRight) {
  SimulatedDevice& device = UseSimulated({.latency = absl::Microseconds(30)});
  Start(&device);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(Step(kBlocks).ok());
    for (int block = 0; block < kBlocks; ++block) {
      ASSERT_TRUE(Visit(block, Direction::kForward).ok());
    }
    for (int block = kBlocks - 1; block >= 0; --block) {
      ASSERT_TRUE(Visit(block, Direction::kBackward).ok());
    }
  }
  EXPECT_THAT(device.violations(), IsEmpty());
}

TEST_P(SwapTrustTest, SamplesBetweenStepsAreRightAndCostNoMiss) {
  SimulatedDevice& device = UseSimulated({.latency = absl::Microseconds(30)});
  Start(&device);
  for (int step = 0; step < 4; ++step) {
    ASSERT_TRUE(Step().ok());
    for (int sample = 0; sample < 2; ++sample) {
      ASSERT_TRUE(swapper_->BeginPass(PassKind::kForwardOnly).ok());
      for (int block = 0; block < kBlocks; ++block) {
        ASSERT_TRUE(Visit(block, Direction::kForward).ok());
      }
    }
  }
  EXPECT_EQ(swapper_->stats().misses, 0);
  EXPECT_THAT(device.violations(), IsEmpty());
}

// Every call of every kind fails once: the error stays, and all memory comes back.
TEST_P(SwapTrustTest, AFailureAtEachCallIsKeptAndLeavesNothingBehind) {
  int SimulatedFailures::*const kinds[] = {&SimulatedFailures::arena,  &SimulatedFailures::event,
                                           &SimulatedFailures::lock,   &SimulatedFailures::copy,
                                           &SimulatedFailures::record, &SimulatedFailures::wait};
  for (int SimulatedFailures::*const kind : kinds) {
    int failed = 0;
    for (int ordinal = 1;; ++ordinal) {
      SimulatedDeviceOptions options;
      options.failures.*kind = ordinal;
      SimulatedDevice& device = UseSimulated(options);
      auto swapper = BlockSwapper::Create(&device, plan_, model_.blocks, model_.reader());
      absl::Status status = swapper.status();
      if (swapper.ok()) {
        swapper_ = *std::move(swapper);
        status = Step();
        if (status.ok()) status = swapper_->Drain();
        if (!status.ok()) {
          EXPECT_EQ(swapper_->BeginPass(PassKind::kTraining), status);
        }
        swapper_.reset();
      }
      EXPECT_EQ(device.ledger().Snapshot().total_bytes, 0);
      if (status.ok()) break;
      ++failed;
    }
    EXPECT_GE(failed, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SwapTrustTest,
                         ::testing::Values(Kind::kRing, Kind::kLayers, Kind::kTrained), KindName);

}  // namespace
}  // namespace blockswap::offload
