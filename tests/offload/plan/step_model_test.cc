// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/step_model.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/device/simulated_device.h"
#include "offload/plan/planner.h"
#include "offload/plan/schedule.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

BlockCosts UniformCosts(int num_blocks, double forward, double backward, double copy) {
  const auto repeat = [&](double value) {
    return std::vector<double>(static_cast<size_t>(num_blocks), value);
  };
  return {repeat(forward), repeat(backward), repeat(copy), repeat(copy)};
}

CycleTimes Ring(int num_blocks, const std::vector<int>& streamed, int ring_size, PassKind kind,
                const BlockCosts& costs) {
  return SimulateCycle(RingSchedule(kind, num_blocks, streamed, ring_size, 1), kind,
                       TransferMode::kH2dOnly, costs);
}

TEST(BackwardVisitsTest, EverySecondVisitOfABlockIsBackward) {
  TransferSchedule schedule;
  schedule.visits = Visits(PassKind::kTraining, 2, 2);
  const std::vector<bool> expected = {false, false, true, true, false, false, true, true};
  EXPECT_EQ(BackwardVisits(schedule, PassKind::kTraining, 2), expected);
  schedule.visits = {0, 1};
  EXPECT_EQ(BackwardVisits(schedule, PassKind::kForwardOnly, 2), std::vector<bool>(2, false));
}

TEST(SimulateCycleTest, ResidentBlocksNeverStall) {
  const CycleTimes times = Ring(5, {}, 0, PassKind::kTraining, UniformCosts(5, 1.0, 2.0, 100.0));
  EXPECT_DOUBLE_EQ(times.cycle, 15.0);
  EXPECT_DOUBLE_EQ(times.compute, 15.0);
  EXPECT_DOUBLE_EQ(times.copy, 0.0);
  EXPECT_DOUBLE_EQ(times.stall, 0.0);
}

TEST(SimulateCycleTest, OneSlotDoesNotOverlap) {
  // Three blocks over one slot: 4 loads of 10 s each wait for the block before them.
  const CycleTimes times =
      Ring(3, {0, 1, 2}, 1, PassKind::kTraining, UniformCosts(3, 1.0, 2.0, 10.0));
  EXPECT_DOUBLE_EQ(times.compute, 9.0);
  EXPECT_DOUBLE_EQ(times.copy, 40.0);
  EXPECT_DOUBLE_EQ(times.cycle, 49.0);
}

TEST(SimulateCycleTest, ExchangeWaitsForTheWriteBack) {
  // Two blocks, one slot: each of the two exchanges is a copy out and a copy in.
  const TransferSchedule schedule = ExchangeSchedule(PassKind::kTraining, 2, {{0, 2, 1}}, 1);
  const CycleTimes times = SimulateCycle(schedule, PassKind::kTraining, TransferMode::kExchange,
                                         UniformCosts(2, 1.0, 2.0, 10.0));
  EXPECT_DOUBLE_EQ(times.cycle, 6.0 + 2 * 20.0);
}

TEST(SimulateCycleTest, ExchangeWaitsForASpareHostBuffer) {
  // Two blocks go down and two come up, twice a cycle.
  TransferSchedule schedule;
  schedule.visits = {0, 1, 2, 3};
  schedule.transfers = {{1, 2, 0}, {1, 3, 1}, {3, 0, 2}, {3, 1, 3}};
  schedule.initial = {0, 1};
  BlockCosts costs = UniformCosts(4, 0.0, 0.0, 10.0);
  const auto cycle = [&] {
    return SimulateCycle(schedule, PassKind::kForwardOnly, TransferMode::kExchange, costs).cycle;
  };
  // The second goes down while the first comes up.
  EXPECT_DOUBLE_EQ(cycle(), 60.0);
  costs.host_buffer.assign(4, 4096);
  costs.spare_buffers = {4096, 4096};
  EXPECT_DOUBLE_EQ(cycle(), 60.0);
  // It needs the buffer of the first, and that is being read.
  costs.spare_buffers = {4096};
  EXPECT_DOUBLE_EQ(cycle(), 80.0);
}

// facts/swap_sim.py: 60 blocks, 20 to 56 streamed, copies 0.25 to 4 times the compute, equal and
// unequal blocks.
TEST(SimulateCycleTest, EvenPlacementReachesItsBoundAndBeatsTheTail) {
  const uint64_t seed = 1;
  std::mt19937_64 random(seed);
  const int num_blocks = 60;
  for (const bool unequal : {false, true}) {
    BlockCosts costs = UniformCosts(num_blocks, 1.0, 2.9, 0.0);
    for (int block = 0; unequal && block < num_blocks; ++block) {
      costs.forward[static_cast<size_t>(block)] =
          std::uniform_real_distribution<double>(0.7, 1.3)(random);
      costs.backward[static_cast<size_t>(block)] = 2.9 * costs.forward[static_cast<size_t>(block)];
    }
    const double forward = std::accumulate(costs.forward.begin(), costs.forward.end(), 0.0);
    for (const int streamed : {20, 40, 56}) {
      for (const double ratio : {0.25, 0.5, 1.0, 2.0, 4.0}) {
        SCOPED_TRACE(absl::StrCat("seed ", seed, " S=", streamed, " copy/compute ", ratio));
        costs.h2d.assign(static_cast<size_t>(num_blocks), ratio * 3.9 * forward / (2.0 * streamed));
        std::vector<int> tail(static_cast<size_t>(streamed));
        std::iota(tail.begin(), tail.end(), num_blocks - streamed);
        const std::vector<int> even = EvenlySpaced(num_blocks, streamed);
        const double even_time = Ring(num_blocks, even, 2, PassKind::kTraining, costs).cycle;
        const double tail_time = Ring(num_blocks, tail, 2, PassKind::kTraining, costs).cycle;
        const double bound = EvenSpacingBound(
            RingSchedule(PassKind::kTraining, num_blocks, even, 2, 1), PassKind::kTraining, costs);
        EXPECT_GE(even_time, bound * (1 - 1e-9));
        EXPECT_LE(bound / even_time, 1.0 + 1e-9);
        EXPECT_GE(bound / even_time, 0.96);
        EXPECT_LE(even_time, tail_time * (1 + 1e-9));
      }
    }
  }
}

TEST(FlushedRingBoundTest, LoadsEveryStreamedBlockInEachDirection) {
  const BlockCosts costs = UniformCosts(6, 1.0, 3.0, 4.0);
  // Forward is bound by 3 copies of 4, backward by 6 blocks of 3.
  EXPECT_DOUBLE_EQ(FlushedRingBound({1, 3, 5}, PassKind::kTraining, costs), 12 + 18);
  EXPECT_DOUBLE_EQ(FlushedRingBound({1, 3, 5}, PassKind::kForwardOnly, costs), 12);
  EXPECT_DOUBLE_EQ(FlushedRingBound({}, PassKind::kTraining, costs), 6 + 18);
}

// Inputs that wait on the host share the link with the blocks; alone they hide behind compute.
TEST(SimulateCycleTest, InputsOnTheHostTakeTheirShareOfTheLink) {
  BlockCosts costs = UniformCosts(4, 1.0, 2.0, 0.0);
  costs.boundary_d2h.assign(4, 0.5);
  costs.boundary_h2d.assign(4, 0.5);
  CycleTimes times = Ring(4, {}, 0, PassKind::kTraining, costs);
  EXPECT_DOUBLE_EQ(times.cycle, 12 + 2 * 0.5) << "the last block's input goes down and comes back";
  EXPECT_DOUBLE_EQ(times.copy, 4 * 0.5);
  costs.boundary_h2d.assign(4, 5.0);
  times = Ring(4, {}, 0, PassKind::kTraining, costs);
  EXPECT_GE(times.cycle, 4 * 5.0);
}

TEST(TailPlacementBoundTest, FollowsTheFormulaAndIsNeverBelowEvenSpacing) {
  // sglang#31538 as facts/offload.md 5.4 fits it: 60 layers, copy 0.943, compute 0.279, one pass.
  BlockCosts costs = UniformCosts(60, 0.279, 0.0, 0.943);
  EXPECT_NEAR(TailPlacementBound(60, PassKind::kForwardOnly, costs), 56.6, 0.1);
  EXPECT_NEAR(TailPlacementBound(30, PassKind::kForwardOnly, costs), 36.68, 0.1);
  EXPECT_NEAR(TailPlacementBound(26, PassKind::kForwardOnly, costs), 34.0, 0.1);
  EXPECT_DOUBLE_EQ(TailPlacementBound(0, PassKind::kTraining, UniformCosts(4, 1, 2, 9)), 12.0);
}

// The model and the swapper are two programs that have to agree on how long a schedule takes. A
// copy takes 1 ms, forward 0.4 ms, backward 0.8 ms.
void ExpectThatTheSwapperTakesAsLong(const FakeModel& model, const SwapPlan& plan) {
  SimulatedDevice device({.h2d_bytes_per_second = 256e6,
                          .latency = absl::ZeroDuration(),
                          .host_call = absl::ZeroDuration()});
  auto swapper = BlockSwapper::Create(&device, plan, model.blocks, model.reader());
  ASSERT_TRUE(swapper.ok()) << swapper.status();
  absl::Duration before;
  const int warmup = 3, measured = 4;
  for (int step = 0; step < warmup + measured; ++step) {
    if (step == warmup) before = device.compute_time();
    ASSERT_TRUE((*swapper)->BeginPass(PassKind::kTraining).ok());
    for (int visit = 0; visit < 16; ++visit) {
      const bool backward = visit >= 8;
      auto lease = (*swapper)->Acquire(plan.training.visits[static_cast<size_t>(visit)],
                                       backward ? Direction::kBackward : Direction::kForward);
      ASSERT_TRUE(lease.ok()) << lease.status();
      ASSERT_TRUE(
          device.NoteComputeUse(*lease->Get(0), absl::Microseconds(backward ? 800 : 400)).ok());
    }
  }
  const double step_seconds = absl::ToDoubleSeconds(device.compute_time() - before) / measured;
  const double predicted = SimulateCycle(plan.training, PassKind::kTraining, TransferMode::kH2dOnly,
                                         UniformCosts(8, 0.4e-3, 0.8e-3, 1e-3))
                               .cycle;
  EXPECT_NEAR(step_seconds, predicted, 1e-6);
  EXPECT_EQ((*swapper)->stats().misses, 0);
}

TEST(SimulateCycleTest, AgreesWithTheSwapperOnTheSimulatedDevice) {
  for (const int streamed : {2, 4, 7}) {
    for (const int ring_size : {1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat("S=", streamed, " R=", ring_size));
      const FakeModel model = MakeUniformModel(8, 1000 * 256);
      PlanRequest request = model.request();
      request.constraints.blocks_to_swap = streamed;
      request.constraints.ring_size = ring_size;
      const absl::StatusOr<SwapPlan> plan = Plan(request);
      ASSERT_TRUE(plan.ok()) << plan.status();
      ExpectThatTheSwapperTakesAsLong(model, *plan);
    }
  }
}

TEST(SimulateCycleTest, AgreesWithTheSwapperOnAWindow) {
  const FakeModel model = MakeUniformModel(8, 1000 * 256);
  for (int slots = 2; slots < 8; ++slots) {
    SCOPED_TRACE(absl::StrCat(slots, " slots"));
    const std::vector<SlotGroup> groups = {{{0, 1, 2, 3, 4, 5, 6, 7}, slots, {0, 7}}};
    SwapPlan plan;
    plan.blocks.assign(8, {Residence::kStreamed});
    plan.slots = slots;
    plan.slot_bytes = model.blocks[0].bytes;
    plan.slot_sizes.assign(static_cast<size_t>(slots), plan.slot_bytes);
    plan.training = GroupSchedule(PassKind::kTraining, 8, groups, 1);
    ExpectThatTheSwapperTakesAsLong(model, plan);
  }
}

}  // namespace
}  // namespace blockswap::offload
