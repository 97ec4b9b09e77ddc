// SPDX-License-Identifier: Apache-2.0
// Prefetching is exact: from the second cycle on nothing is loaded on demand, whatever the sizes,
// the budget and the validation passes in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "offload/device/simulated_device.h"
#include "offload/plan/planner.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"

namespace blockswap::offload {
namespace {

constexpr int kSeeds = 400;
constexpr int kCycles = 5;
// Fewer worlds than this with something to load, and the test would prove little.
constexpr int kLeastStreaming = kSeeds / 3;

// A model of random sizes, a plan for a random budget, a device of random speed. Which of the two
// granularities is the caller's.
class World {
 public:
  World(uint64_t seed, Granularity granularity) : random_(seed) {
    const int num_blocks = Int(2, 9);
    model_ = MakeLayeredModel(random_, num_blocks, /*max_layers=*/6, /*max_tensor_bytes=*/1500,
                              /*alike=*/Chance(2));
    PlanRequest request = model_.request();
    request.micro_batches = Int(1, 3);
    request.constraints.granularity = granularity;
    request.constraints.pin_policy = static_cast<PinPolicy>(Int(0, 2));
    request.constraints.vram_budget_bytes = model_.total_bytes() * Int(2, 9) / 10;
    if (Chance(3)) request.constraints.ring_size = Int(1, 4);
    if (Chance(2)) {
      request.compute_flops_per_second = request.model.forward_flops;
      request.link.h2d_bytes_per_second = static_cast<double>(model_.total_bytes()) / Int(1, 8);
    }
    absl::StatusOr<SwapPlan> plan = Plan(request);
    if (!plan.ok()) {  // a budget below the smallest plan is an answer of the planner
      EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition) << plan.status();
      return;
    }
    SimulatedDeviceOptions options;
    options.seed = seed;
    options.jitter = Int(0, 2);
    options.h2d_bytes_per_second = Chance(2) ? 1e6 : 1e9;
    options.host_follows_compute = Chance(2);
    options.copies_need_pinned_memory = Chance(2);
    device_ = std::make_unique<SimulatedDevice>(options);
    absl::StatusOr<std::unique_ptr<BlockSwapper>> swapper =
        BlockSwapper::Create(device_.get(), *std::move(plan), model_.blocks, model_.reader());
    EXPECT_TRUE(swapper.ok()) << swapper.status();
    if (swapper.ok()) swapper_ = *std::move(swapper);
  }

  bool streams() const { return swapper_ != nullptr && swapper_->plan().num_streamed() > 0; }
  int Int(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool Chance(int one_in) { return Int(1, one_in) == 1; }
  SwapStats stats() const { return swapper_->stats(); }

  // A step: every micro-batch forward and backward, or block by block all of them together.
  void Train() {
    ASSERT_TRUE(swapper_->BeginPass(PassKind::kTraining).ok());
    std::vector<bool> seen(model_.blocks.size(), false);
    for (const int block : std::vector<int>(swapper_->plan().training.visits)) {
      const auto index = static_cast<size_t>(block);
      Visit(block, seen[index] ? Direction::kBackward : Direction::kForward);
      seen[index] = !seen[index];
      if (::testing::Test::HasFailure()) return;
    }
  }

  void Validate() {
    ASSERT_TRUE(swapper_->BeginPass(PassKind::kForwardOnly).ok());
    for (int block = 0; block < static_cast<int>(model_.blocks.size()); ++block) {
      Visit(block, Direction::kForward);
      if (::testing::Test::HasFailure()) return;
    }
  }

  // From here on each miss is a failure that says where.
  void ExpectNoMoreMisses() { misses_ = swapper_->stats().misses; }

  void CheckViolations() const {
    const std::vector<std::string> violations = device_->violations();
    EXPECT_TRUE(violations.empty()) << violations.front();
  }

 private:
  void Visit(int block, Direction direction) {
    const BlockProfile& profile = model_.blocks[static_cast<size_t>(block)];
    const absl::StatusOr<BlockLease> lease = swapper_->Acquire(block, direction);
    ASSERT_TRUE(lease.ok()) << lease.status();
    const std::vector<int>& layers =
        direction == Direction::kForward ? profile.forward_layers : profile.backward_layers;
    for (const int layer : layers) {
      std::vector<TensorLease> together;
      for (const int tensor : profile.layers[static_cast<size_t>(layer)].tensors) {
        absl::StatusOr<TensorLease> held = lease->Hold(tensor);
        ASSERT_TRUE(held.ok()) << held.status();
        ASSERT_TRUE(device_->NoteComputeUse(held->span(), absl::Microseconds(Int(0, 20))).ok());
        together.push_back(*std::move(held));
      }
      ExpectHit(block, layer, direction);
    }
    ExpectHit(block, /*layer=*/-1, direction);
  }

  void ExpectHit(int block, int layer, Direction direction) {
    if (misses_ < 0) return;
    ASSERT_EQ(swapper_->stats().misses, misses_)
        << "block " << block << " layer " << layer
        << (direction == Direction::kForward ? " forward" : " recompute and backward");
  }

  std::mt19937_64 random_;
  FakeModel model_;
  std::unique_ptr<SimulatedDevice> device_;
  std::unique_ptr<BlockSwapper> swapper_;
  int64_t misses_ = -1;  // that are allowed; -1: any number
};

// Returns whether anything streamed.
bool RunSeed(uint64_t seed, Granularity granularity) {
  World world(seed, granularity);
  if (!world.streams()) return false;
  world.Train();
  world.ExpectNoMoreMisses();
  for (int cycle = 1; cycle < kCycles && !::testing::Test::HasFailure(); ++cycle) {
    for (int passes = world.Chance(2) ? world.Int(1, 2) : 0; passes > 0; --passes) world.Validate();
    world.Train();
  }
  const SwapStats stats = world.stats();
  EXPECT_GT(stats.hits + stats.late, 0);
  world.CheckViolations();
  return true;
}

void RunSeeds(uint64_t first, Granularity granularity) {
  uint64_t only = 0;
  const char* const chosen = std::getenv("BLOCKSWAP_TEST_SEED");
  if (chosen != nullptr && absl::SimpleAtoi(chosen, &only)) {
    SCOPED_TRACE(absl::StrCat("seed ", only));
    RunSeed(only, granularity);
    return;
  }
  int streaming = 0;
  for (uint64_t seed = first; seed < first + kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("BLOCKSWAP_TEST_SEED=", seed));
    streaming += RunSeed(seed, granularity) ? 1 : 0;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GE(streaming, kLeastStreaming);
}

TEST(ExactPrefetchTest, BlocksAreThereInForwardRecomputeBackwardAndValidation) {
  RunSeeds(/*first=*/1, Granularity::kBlock);
}

TEST(ExactPrefetchTest, LayersAreThereInForwardRecomputeBackwardAndValidation) {
  RunSeeds(/*first=*/500001, Granularity::kLayer);
}

}  // namespace
}  // namespace blockswap::offload
