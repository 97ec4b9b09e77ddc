// SPDX-License-Identifier: Apache-2.0
// Changing the plan of a running swapper: bytes, device memory, masters, and refusals half-way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/device/host_device.h"
#include "offload/device/simulated_device.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/fake_plan.h"

namespace blockswap::offload {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kBlocks = 8;
constexpr int64_t kBytes = 4096;

std::unique_ptr<BlockSwapper> Start(DeviceRuntime* device, const FakeModel& model,
                                    const SwapPlan& plan) {
  absl::StatusOr<std::unique_ptr<BlockSwapper>> swapper =
      BlockSwapper::Create(device, plan, model.blocks, model.reader());
  EXPECT_TRUE(swapper.ok()) << swapper.status();
  return *std::move(swapper);
}

// One training step that reads every block as it should be.
void Step(BlockSwapper& swapper, const FakeModel& model, SimulatedDevice* simulated = nullptr) {
  ASSERT_TRUE(swapper.BeginPass(PassKind::kTraining).ok());
  const int num_blocks = static_cast<int>(model.blocks.size());
  for (int visit = 0; visit < 2 * num_blocks; ++visit) {
    const int block = visit < num_blocks ? visit : 2 * num_blocks - 1 - visit;
    absl::StatusOr<BlockLease> lease =
        swapper.Acquire(block, visit < num_blocks ? Direction::kForward : Direction::kBackward);
    ASSERT_TRUE(lease.ok()) << lease.status();
    const DeviceSpan span = *lease->Get(0);
    if (simulated != nullptr) {
      const absl::Status used = simulated->CheckRead(span);
      ASSERT_TRUE(used.ok()) << used;
    }
    ASSERT_EQ(std::memcmp(span.data, model.contents[static_cast<size_t>(block)].data(),
                          static_cast<size_t>(span.bytes)),
              0)
        << "block " << block;
  }
}

class AdoptTest : public ::testing::Test {
 protected:
  SwapPlan PlanOf(int blocks_to_swap, int ring_size, PinPolicy policy = PinPolicy::kNever) {
    return MakeEvenRingPlan(model_.blocks, blocks_to_swap, ring_size, policy);
  }

  FakeModel model_ = MakeUniformModel(kBlocks, kBytes);
};

TEST_F(AdoptTest, EveryPlanCanFollowEveryOther) {
  auto device = *HostDevice::Create({});
  for (int before = 0; before <= kBlocks; ++before) {
    for (int after = 0; after <= kBlocks; ++after) {
      for (const int ring_size : {1, 3}) {
        SCOPED_TRACE(absl::StrCat(before, " to ", after, ", ring ", ring_size));
        auto swapper = Start(device.get(), model_, PlanOf(before, 2));
        Step(*swapper, model_);
        const SwapPlan next = PlanOf(after, ring_size);
        ASSERT_TRUE(swapper->Adopt(next).ok());
        EXPECT_EQ(device->ledger().Snapshot().total_bytes,
                  next.prediction.ring_bytes + next.prediction.resident_bytes);
        EXPECT_EQ(swapper->stats().host_master_bytes, after * kBytes);
        Step(*swapper, model_);
        EXPECT_EQ(swapper->stats().misses, 0);
        EXPECT_EQ(swapper->stats().adoptions, 1);
      }
    }
  }
  EXPECT_EQ(device->ledger().Snapshot().total_bytes, 0);
}

TEST_F(AdoptTest, WhatStaysResidentIsNotMoved) {
  auto device = *HostDevice::Create({});
  auto swapper = Start(device.get(), model_, PlanOf(2, 2));
  ASSERT_TRUE(swapper->Adopt(PlanOf(4, 2)).ok());
  const SwapStats stats = swapper->stats();
  EXPECT_EQ(stats.adopted_d2h_bytes % kBytes, 0);
  EXPECT_LE(stats.adopted_d2h_bytes, 4 * kBytes);
  EXPECT_LE(stats.adopted_h2d_bytes, 2 * kBytes);
}

TEST_F(AdoptTest, CountersGoOn) {
  auto device = *HostDevice::Create({});
  auto swapper = Start(device.get(), model_, PlanOf(5, 2));
  Step(*swapper, model_);
  const SwapStats before = swapper->stats();
  ASSERT_TRUE(swapper->Adopt(PlanOf(3, 1)).ok());
  EXPECT_GE(swapper->stats().h2d_bytes, before.h2d_bytes);
  EXPECT_EQ(swapper->stats().hits, before.hits);
  EXPECT_EQ(swapper->plan().num_streamed(), 3);
}

TEST_F(AdoptTest, APlanWithoutStreamedBlocksGivesEveryMasterBack) {
  auto device = *HostDevice::Create({});
  auto swapper = Start(device.get(), model_, PlanOf(5, 2));
  ASSERT_TRUE(swapper->Adopt(PlanOf(0, 2)).ok());
  EXPECT_EQ(swapper->stats().host_master_bytes, 0);
  EXPECT_EQ(swapper->stats().blocks_on_device, kBlocks);
  Step(*swapper, model_);
  ASSERT_TRUE(swapper->Adopt(PlanOf(8, 1)).ok());
  Step(*swapper, model_);
}

// A budget that holds the larger plan and one block more is always enough on the way.
TEST_F(AdoptTest, NeverTakesMoreThanTheLargerPlanAndOneBlock) {
  auto device = *HostDevice::Create({.budget_bytes = (6 + 1) * kBytes});
  auto swapper = Start(device.get(), model_, PlanOf(4, 2));  // 4 residents, 2 slots
  for (const int blocks_to_swap : {8, 5, 4, 6, 4}) {
    device->ledger().ResetPeaks();
    const int64_t before = device->ledger().Snapshot().total_bytes;
    const absl::Status adopted = swapper->Adopt(PlanOf(blocks_to_swap, 2));
    ASSERT_TRUE(adopted.ok()) << adopted;
    const MemorySnapshot snapshot = device->ledger().Snapshot();
    EXPECT_LE(snapshot.total_peak_bytes, std::max(before, snapshot.total_bytes) + kBytes);
    Step(*swapper, model_);
  }
}

TEST_F(AdoptTest, APlanThatDoesNotFitLeavesTheOldOneAtWork) {
  auto device = *HostDevice::Create({.budget_bytes = 6 * kBytes});
  auto swapper = Start(device.get(), model_, PlanOf(5, 2));
  const absl::Status refused = swapper->Adopt(PlanOf(1, 1));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(swapper->plan().num_streamed(), 5);
  EXPECT_EQ(device->ledger().Snapshot().total_bytes, 5 * kBytes);
  EXPECT_EQ(swapper->stats().host_master_bytes, 5 * kBytes);
  Step(*swapper, model_);
  EXPECT_EQ(swapper->stats().misses, 0);
  ASSERT_TRUE(swapper->Adopt(PlanOf(4, 2)).ok());
  Step(*swapper, model_);
}

TEST_F(AdoptTest, ALeaseAnotherModelAndExchangeAreRefused) {
  auto device = *HostDevice::Create({});
  auto swapper = Start(device.get(), model_, PlanOf(5, 2));
  {
    const BlockLease lease = *swapper->Acquire(0, Direction::kForward);
    const absl::Status refused = swapper->Adopt(PlanOf(3, 2));
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("1 blocks are leased"));
  }
  EXPECT_EQ(swapper->Adopt(MakeEvenRingPlan(MakeUniformModel(7, kBytes).blocks, 3, 2)).code(),
            absl::StatusCode::kInvalidArgument);
  PlanRequest request = model_.request();
  request.constraints.blocks_to_swap = 3;
  request.constraints.mode = TransferMode::kExchange;
  EXPECT_EQ(swapper->Adopt(*Plan(request)).code(), absl::StatusCode::kFailedPrecondition);
  SwapPlan trained = PlanOf(3, 2);
  trained.base_trains = true;
  EXPECT_EQ(swapper->Adopt(trained).code(), absl::StatusCode::kInvalidArgument);
  Step(*swapper, model_);
}

enum class Fault { kArena, kEvent, kLock };

SimulatedFailures FailAt(Fault fault, int ordinal) {
  SimulatedFailures failures;
  int* const ordinals[] = {&failures.arena, &failures.event, &failures.lock};
  *ordinals[static_cast<int>(fault)] = ordinal;
  return failures;
}

int CallsOf(Fault fault, const SimulatedFailures& calls) {
  const int counts[] = {calls.arena, calls.event, calls.lock};
  return counts[static_cast<int>(fault)];
}

// Blocks of unlike sizes: no arena can serve another block, so memory is given back on the way.
TEST(AdoptFaultsTest, ARefusalAtEachAllocationLeavesTheOldPlanAtWork) {
  std::mt19937_64 random(7);
  const FakeModel model = MakeFakeModel(random, 7, 3000, /*alike=*/false);
  const SwapPlan from = MakeEvenRingPlan(model.blocks, 4, 1, PinPolicy::kRequired);
  for (const int to_swap : {2, 5, 6}) {
    const SwapPlan to = MakeEvenRingPlan(model.blocks, to_swap, 3, PinPolicy::kRequired);
    for (const bool pinned : {false, true}) {
      const SimulatedDeviceOptions options{.copies_need_pinned_memory = pinned};
      SimulatedFailures created;
      {
        SimulatedDevice probe(options);
        auto swapper = Start(&probe, model, from);
        created = probe.calls();
        ASSERT_TRUE(swapper->Adopt(to).ok());
      }
      int refusals = 0;
      for (const Fault fault : {Fault::kArena, Fault::kEvent, Fault::kLock}) {
        for (int ordinal = CallsOf(fault, created) + 1;; ++ordinal) {
          SCOPED_TRACE(
              absl::StrCat("to ", to_swap, ", fault ", static_cast<int>(fault), " at ", ordinal));
          SimulatedDeviceOptions failing = options;
          failing.failures = FailAt(fault, ordinal);
          SimulatedDevice device(failing);
          auto swapper = Start(&device, model, from);
          Step(*swapper, model, &device);
          const int64_t before = device.ledger().Snapshot().total_bytes;
          const int64_t host_before = swapper->stats().host_master_bytes;
          const absl::Status refused = swapper->Adopt(to);
          if (refused.ok()) break;
          ++refusals;
          EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
          EXPECT_EQ(device.ledger().Snapshot().total_bytes, before);
          EXPECT_EQ(swapper->stats().host_master_bytes, host_before);
          EXPECT_EQ(swapper->plan().num_streamed(), 4);
          Step(*swapper, model, &device);
          EXPECT_EQ(swapper->stats().misses, 0);
          const absl::Status again = swapper->Adopt(to);
          ASSERT_TRUE(again.ok()) << again;
          Step(*swapper, model, &device);
          EXPECT_THAT(device.violations(), IsEmpty());
        }
      }
      EXPECT_GE(refusals, 3);
    }
  }
}

// Reads every tensor of every block, in an order that no plan expects.
void ReadAll(BlockSwapper& swapper, const FakeModel& model, SimulatedDevice& device) {
  ASSERT_TRUE(swapper.BeginPass(PassKind::kTraining).ok());
  for (int block = static_cast<int>(model.blocks.size()) - 1; block >= 0; --block) {
    const absl::StatusOr<BlockLease> lease = swapper.Acquire(block, Direction::kForward);
    ASSERT_TRUE(lease.ok()) << lease.status();
    const BlockProfile& profile = model.blocks[static_cast<size_t>(block)];
    for (int tensor = 0; tensor < static_cast<int>(profile.tensors.size()); ++tensor) {
      const absl::StatusOr<TensorLease> held = lease->Hold(tensor);
      ASSERT_TRUE(held.ok()) << held.status();
      ASSERT_TRUE(device.CheckRead(held->span()).ok());
      ASSERT_EQ(std::memcmp(held->span().data,
                            model.contents[static_cast<size_t>(block)].data() +
                                profile.tensors[static_cast<size_t>(tensor)].offset,
                            static_cast<size_t>(held->span().bytes)),
                0);
    }
  }
}

// Copies through staging buffers are under way and the buffers are replaced by larger ones before
// device memory is refused.
TEST(AdoptFaultsTest, LayersGoOnAfterARefusal) {
  std::mt19937_64 random(13);
  const FakeModel model = MakeLayeredModel(random, 6, 4, 2000, /*alike=*/false);
  const SwapPlan from = MakeLayerPlan(model.blocks, {0, 1, 2, 3, 4, 5});
  for (const SwapPlan& to :
       {MakeEvenRingPlan(model.blocks, 3, 3), MakeLayerPlan(model.blocks, {2, 4})}) {
    const int64_t after = to.prediction.ring_bytes + to.prediction.resident_bytes;
    const int64_t before = from.prediction.ring_bytes + from.prediction.resident_bytes;
    ASSERT_GT(after, before);
    for (int64_t budget = before; budget < after; budget += (after - before + 3) / 4) {
      SCOPED_TRACE(absl::StrCat("budget ", budget));
      SimulatedDevice device({.copies_need_pinned_memory = true});
      auto swapper = Start(&device, model, from);
      ReadAll(*swapper, model, device);
      device.ledger().SetBudget(budget);
      EXPECT_EQ(swapper->Adopt(to).code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(device.ledger().Snapshot().total_bytes, before);
      ReadAll(*swapper, model, device);
      device.ledger().SetBudget(0);
      ASSERT_TRUE(swapper->Adopt(to).ok());
      ReadAll(*swapper, model, device);
      EXPECT_THAT(device.violations(), IsEmpty());
    }
  }
}

TEST(AdoptFaultsTest, AFailedCopyIsKeptAndNothingIsLeftBehind) {
  const FakeModel model = MakeUniformModel(6, 512);
  const SwapPlan from = MakeEvenRingPlan(model.blocks, 4, 2);
  const SwapPlan to = MakeEvenRingPlan(model.blocks, 2, 1);
  SimulatedDevice probe(SimulatedDeviceOptions{});
  int first = 0;
  {
    auto swapper = Start(&probe, model, from);
    first = probe.calls().copy + 1;
    ASSERT_TRUE(swapper->Adopt(to).ok());
  }
  ASSERT_GT(probe.calls().copy, first);
  for (int ordinal = first; ordinal <= probe.calls().copy; ++ordinal) {
    SimulatedDevice device({.failures = {.copy = ordinal}});
    auto swapper = Start(&device, model, from);
    const absl::Status failed = swapper->Adopt(to);
    EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(swapper->BeginPass(PassKind::kTraining), failed);
    EXPECT_EQ(swapper->Adopt(from), failed);
    swapper.reset();
    EXPECT_EQ(device.ledger().Snapshot().total_bytes, 0);
  }
}

}  // namespace
}  // namespace blockswap::offload
