// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/placement_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/plan/block_costs.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/naive_swapper.h"
#include "tests/offload/plan/schedule_oracle.h"

namespace blockswap::offload {
namespace {

enum class Kind { kAlike, kUnequalTimes, kTwoSizes, kAllSizes };

double Between(std::mt19937_64& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

int64_t BlockBytes(std::mt19937_64& random, Kind kind, bool first_list) {
  switch (kind) {
    case Kind::kTwoSizes:
      return first_list ? 200 : 100;
    case Kind::kAllSizes:
      return static_cast<int64_t>(50 + random() % 150);
    default:
      return 100;
  }
}

int64_t TotalBytes(const PlanRequest& request) {
  return std::accumulate(request.model.blocks.begin(), request.model.blocks.end(), int64_t{0},
                         [](int64_t sum, const BlockProfile& block) { return sum + block.bytes; });
}

// Speeds such that loading the model once each way takes `ratio` times the compute of a step.
PlanRequest MakeRequest(std::mt19937_64& random, Kind kind, int num_blocks, double ratio) {
  PlanRequest request;
  const int first_list = 1 + static_cast<int>(random() % static_cast<uint64_t>(num_blocks));
  for (int i = 0; i < num_blocks; ++i) {
    BlockProfile block;
    block.bytes = kTensorAlignment * BlockBytes(random, kind, i < first_list);
    block.tensors = {{0, block.bytes}};
    block.forward_flops = kind == Kind::kAlike ? 1 : static_cast<double>(block.bytes);
    if (kind != Kind::kAlike) block.forward_flops *= Between(random, 0.7, 1.3);
    request.model.forward_flops += block.forward_flops;
    request.model.blocks.push_back(std::move(block));
  }
  request.model.backward_over_forward = Between(random, 1.5, 3.2);
  request.compute_flops_per_second = request.model.forward_flops;
  request.lockable_bytes = std::numeric_limits<int64_t>::max();
  const double step = 1 + request.model.backward_over_forward;
  request.link.h2d_bytes_per_second = static_cast<double>(TotalBytes(request)) / (ratio * step / 2);
  return request;
}

double Pick(std::mt19937_64& random, const std::vector<double>& values) {
  return values[random() % values.size()];
}

const std::vector<double>& Ratios() {
  static const auto* const kRatios = new std::vector<double>{0.25, 0.5, 1, 2, 4};
  return *kRatios;
}

void CompareWithEverySchedule(Kind kind, int most_blocks, int seeds, double allowed) {
  int compared = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const int num_blocks = 3 + static_cast<int>(random() % static_cast<uint64_t>(most_blocks - 2));
    PlanRequest request = MakeRequest(random, kind, num_blocks, Pick(random, Ratios()));
    const double share = Between(random, 0.3, 0.95);
    const auto budget = std::llround(share * static_cast<double>(TotalBytes(request)));
    request.constraints.vram_budget_bytes = budget;
    std::vector<int64_t> bytes;
    for (const BlockProfile& block : request.model.blocks) bytes.push_back(block.bytes);
    const double best = FastestStep(bytes, budget, MakeCosts(request, {}, {}));
    const absl::StatusOr<SwapPlan> plan = Plan(request);
    ASSERT_EQ(plan.ok(), std::isfinite(best)) << plan.status();
    if (!plan.ok()) continue;
    ++compared;
    const double step = absl::ToDoubleSeconds(plan->prediction.step);
    EXPECT_LE(step, best * allowed) << num_blocks << " blocks, budget " << share;
    EXPECT_GE(step, best * (1 - 1e-6)) << "the oracle missed a schedule";
  }
  EXPECT_GT(compared, seeds / 2);
}

TEST(PlacementOracleTest, AlikeBlocksAreWithinOnePercentOfTheFastestSchedule) {
  CompareWithEverySchedule(Kind::kAlike, 7, 60, 1.01);
}

TEST(PlacementOracleTest, UnequalTimesAreWithinOnePercentOfTheFastestSchedule) {
  CompareWithEverySchedule(Kind::kUnequalTimes, 7, 60, 1.01);
}

TEST(PlacementOracleTest, TwoSizesAreWithinOnePercentOfTheFastestPlacementAndSchedule) {
  CompareWithEverySchedule(Kind::kTwoSizes, 7, 120, 1.01);
}

TEST(PlacementOracleTest, AllSizesAreWithinOnePercentOfTheFastestPlacementAndSchedule) {
  CompareWithEverySchedule(Kind::kAllSizes, 7, 200, 1.01);
}

// A block that moved among those with larger slots, but is small enough for others, was a plan that
// could not be executed.
TEST(PlacementSearchTest, ABlockGoesIntoTheSmallestSlotsThatHoldIt) {
  for (const uint64_t seed : {24, 123, 777}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    for (int num_blocks = 5; num_blocks <= 24; ++num_blocks) {
      PlanRequest request = MakeRequest(random, Kind::kAllSizes, num_blocks, 1.0);
      request.constraints.vram_budget_bytes = TotalBytes(request) * 2 / 3;
      const absl::StatusOr<SwapPlan> plan = Plan(request);
      EXPECT_TRUE(plan.ok()) << num_blocks << " blocks: " << plan.status();
    }
  }
}

double RingSeconds(const PlanRequest& request, PassKind kind, const std::vector<int>& streamed,
                   int ring_size) {
  const int num_blocks = static_cast<int>(request.model.blocks.size());
  return SimulateCycle(RingSchedule(kind, num_blocks, streamed, ring_size, 1), kind,
                       TransferMode::kH2dOnly, MakeCosts(request, {}, {}))
      .cycle;
}

// The same memory spent by the two rules that everybody else uses.
TEST(PlacementSearchTest, IsNeverSlowerThanEvenSpacingOrTailPlacement) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const Kind kind = static_cast<Kind>(random() % 2);
    const int num_blocks = 4 + static_cast<int>(random() % 30);
    PlanRequest request = MakeRequest(random, kind, num_blocks, Pick(random, Ratios()));
    const int streamed = 3 + static_cast<int>(random() % static_cast<uint64_t>(num_blocks - 3));
    const int64_t each = request.model.blocks[0].bytes;
    request.constraints.vram_budget_bytes = (num_blocks - streamed + kDefaultRingSize) * each;
    const absl::StatusOr<SwapPlan> plan = Plan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const double step = absl::ToDoubleSeconds(plan->prediction.step);
    const std::vector<int> even = EvenlySpaced(num_blocks, streamed);
    std::vector<int> tail(static_cast<size_t>(streamed));
    std::iota(tail.begin(), tail.end(), num_blocks - streamed);
    const PassKind training = PassKind::kTraining;
    EXPECT_LE(step, RingSeconds(request, training, even, kDefaultRingSize) * (1 + 1e-6));
    EXPECT_LE(step, RingSeconds(request, training, tail, kDefaultRingSize) * (1 + 1e-6));
    const BlockCosts costs = MakeCosts(request, {}, {});
    const double pass =
        SimulateCycle(plan->forward_only, PassKind::kForwardOnly, TransferMode::kH2dOnly, costs)
            .cycle;
    if (plan->streamed_blocks() != even) continue;
    EXPECT_LE(pass,
              RingSeconds(request, PassKind::kForwardOnly, even, kDefaultRingSize) * (1 + 1e-6));
  }
}

// Whatever is chosen, every visit finds its block and every cycle ends where it began.
TEST(PlacementSearchTest, EveryPlacementRunsByHandWithinItsBudgets) {
  int windows = 0, apart = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    const Kind kind = static_cast<Kind>(random() % 4);
    const int num_blocks = 3 + static_cast<int>(random() % 20);
    PlanRequest request = MakeRequest(random, kind, num_blocks, Pick(random, Ratios()));
    const int64_t total = TotalBytes(request);
    request.constraints.vram_budget_bytes =
        std::llround(Between(random, 0.3, 0.95) * static_cast<double>(total));
    if (random() % 3 == 0) request.constraints.host_budget_bytes = total / 2;
    request.micro_batches = 1 + static_cast<int>(random() % 3);
    const absl::StatusOr<SwapPlan> plan = Plan(request);
    if (!plan.ok()) continue;
    ASSERT_LE(plan->prediction.device_bytes, *request.constraints.vram_budget_bytes);
    ASSERT_LE(plan->prediction.pinned_bytes + plan->prediction.pageable_bytes,
              request.constraints.host_budget_bytes.value_or(total));
    windows += plan->slots > kDefaultRingSize;
    apart += !plan->slot_sizes.empty();
    for (const TransferSchedule* schedule : {&plan->training, &plan->forward_only}) {
      const NaiveCycle cycle = RunByHand(*plan, *schedule);
      ASSERT_EQ(cycle.absent, 0);
      ASSERT_EQ(cycle.impossible, 0);
      ASSERT_EQ(cycle.final_blocks,
                std::set<int>(schedule->initial.begin(), schedule->initial.end()));
    }
  }
  EXPECT_GT(windows, 0);
  EXPECT_GT(apart, 0);
}

// Like FLUX.1: the user's number maps to fixed shares of both lists, a free choice need not.
TEST(PlacementSearchTest, TwoListsAreNoSlowerThanAsNumbered) {
  std::mt19937_64 random(7);
  PlanRequest request = MakeRequest(random, Kind::kAlike, 57, 2.0);
  for (int i = 0; i < 19; ++i) {
    BlockProfile& block = request.model.blocks[static_cast<size_t>(i)];
    block.bytes *= 2;
    block.tensors = {{0, block.bytes}};
    block.forward_flops *= 2;
  }
  request.model.lists = {{"double_blocks", 0, 19, 19}, {"single_blocks", 19, 38, 38}};
  request.model.max_blocks_to_swap = 36;
  request.constraints.vram_budget_bytes = TotalBytes(request) / 2;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  int compared = 0;
  for (int number = 0; number <= 36; ++number) {
    PlanRequest numbered = request;
    numbered.constraints.blocks_to_swap = number;
    const absl::StatusOr<SwapPlan> by_number = Plan(numbered);
    if (!by_number.ok()) continue;
    ++compared;
    EXPECT_LE(plan->prediction.step, by_number->prediction.step * (1 + kWorthwhileGain)) << number;
  }
  EXPECT_GT(compared, 5);
}

TEST(PlacementSearchTest, MastersForAWindowThatDoNotFitTheHostAreNotTaken) {
  std::mt19937_64 random(1);
  PlanRequest request = MakeRequest(random, Kind::kUnequalTimes, 8, 1.0);
  const int64_t each = request.model.blocks[0].bytes;
  request.constraints.vram_budget_bytes = 5 * each;
  const absl::StatusOr<SwapPlan> free_choice = Plan(request);
  ASSERT_TRUE(free_choice.ok()) << free_choice.status();
  request.constraints.host_budget_bytes = 4 * each;
  const absl::StatusOr<SwapPlan> narrow = Plan(request);
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ(narrow->num_streamed(), 4);
  EXPECT_EQ(narrow->prediction.pinned_bytes, 4 * each);
  EXPECT_GE(narrow->prediction.step, free_choice->prediction.step);
}

// A window moves more blocks than may be locked: where locking is required, it is no choice.
TEST(PlacementSearchTest, RequiredPinningKeepsToWhatMayBeLocked) {
  std::mt19937_64 random(1);
  PlanRequest request = MakeRequest(random, Kind::kUnequalTimes, 8, 1.0);
  const int64_t each = request.model.blocks[0].bytes;
  request.constraints.vram_budget_bytes = 5 * each;
  request.constraints.pin_policy = PinPolicy::kRequired;
  request.lockable_bytes = 4 * each;
  const absl::StatusOr<SwapPlan> plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prediction.pinned_bytes, 4 * each);
  request.lockable_bytes = 2 * each;
  EXPECT_THAT(std::string(Plan(request).status().message()),
              ::testing::HasSubstr("page-locked host memory too small"));
}

TEST(PlacementSearchTest, ARingSizeThatIsAskedForIsKept) {
  std::mt19937_64 random(1);
  PlanRequest request = MakeRequest(random, Kind::kAlike, 12, 1.0);
  request.constraints.vram_budget_bytes = 6 * request.model.blocks[0].bytes;
  for (const int ring_size : {1, 2, 3, 4}) {
    request.constraints.ring_size = ring_size;
    const absl::StatusOr<SwapPlan> plan = Plan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->slots, ring_size);
    EXPECT_EQ(plan->num_streamed(), 6 + ring_size);
  }
}

}  // namespace
}  // namespace blockswap::offload
