// SPDX-License-Identifier: Apache-2.0
// Random plans, devices and visits against the oracle: whatever is asked in whatever order, the
// bytes are right.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "offload/device/simulated_device.h"
#include "offload/plan/candidate.h"
#include "offload/plan/slot_layout.h"
#include "offload/swap/block_swapper.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/naive_swapper.h"

namespace blockswap::offload {
namespace {

constexpr int kSeeds = 1500;

// One random world: a model, a plan for it and a device. BLOCKSWAP_TEST_SEED runs one seed alone.
class World {
 public:
  World(uint64_t seed, bool with_failures) : random_(seed) {
    const int num_blocks = Int(1, 9);
    model_ = MakeFakeModel(random_, num_blocks, Int(0, 3) == 0 ? 5000 : 700, /*alike=*/Chance(2));
    if (num_blocks >= 6 && Chance(3)) MakeTwoLists(num_blocks);
    ChoosePlan(num_blocks);
    ChooseDevice(seed, with_failures);
    oracle_ = std::make_unique<NaiveSwapper>(model_);
  }

  int Int(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool Chance(int one_in) { return Int(1, one_in) == 1; }

  std::mt19937_64 random_;
  FakeModel model_;
  SwapPlan plan_;
  std::unique_ptr<SimulatedDevice> device_;
  std::unique_ptr<BlockSwapper> swapper_;
  std::unique_ptr<NaiveSwapper> oracle_;
  int64_t streamed_acquires_ = 0;
  bool asynchronous_ = false;
  std::vector<BlockList> lists_;

 private:
  // Two lists of alike blocks, the second of another size, as FLUX has.
  void MakeTwoLists(int num_blocks) {
    const int doubles = Int(3, num_blocks - 3);
    model_ = MakeFakeModel(random_, doubles, 700, /*alike=*/true);
    const FakeModel singles = MakeFakeModel(random_, num_blocks - doubles, 1500, /*alike=*/true);
    model_.blocks.insert(model_.blocks.end(), singles.blocks.begin(), singles.blocks.end());
    model_.contents.insert(model_.contents.end(), singles.contents.begin(), singles.contents.end());
    lists_ = {{"doubles", 0, doubles, doubles - 1},
              {"singles", doubles, num_blocks - doubles, num_blocks - doubles - 1}};
  }

  void ChoosePlan(int num_blocks) {
    PlanRequest request = model_.request();
    request.model.lists = lists_;
    request.model.max_blocks_to_swap = lists_.empty() ? 0 : num_blocks / 2 - 1;
    MemoryConstraints& constraints = request.constraints;
    constraints.mode = Chance(2) ? TransferMode::kH2dOnly : TransferMode::kExchange;
    constraints.blocks_to_swap = Int(0, MaxBlocksToSwap(request.model, constraints.mode));
    constraints.ring_size = Int(1, 4);
    constraints.pin_policy = static_cast<PinPolicy>(Int(0, 2));
    request.micro_batches = Int(1, 3);
    absl::StatusOr<SwapPlan> plan = Plan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    if (constraints.mode == TransferMode::kH2dOnly && Chance(3)) {
      plan = ChosenBySpeed(request, *plan);
    }
    plan_ = *plan;
  }

  // Windows, slots of several sizes, forward-only passes that leave blocks in place: what the
  // planner chooses when it can time the steps.
  SwapPlan ChosenBySpeed(PlanRequest request, const SwapPlan& otherwise) {
    request.constraints.blocks_to_swap.reset();
    request.constraints.ring_size.reset();
    request.constraints.vram_budget_bytes = model_.total_bytes() * Int(3, 9) / 10;
    request.compute_flops_per_second = request.model.forward_flops;
    request.link.h2d_bytes_per_second = static_cast<double>(model_.total_bytes()) / Int(1, 8);
    const absl::StatusOr<SwapPlan> plan = Plan(request);
    return plan.ok() ? *plan : otherwise;
  }

  void ChooseDevice(uint64_t seed, bool with_failures) {
    SimulatedDeviceOptions options;
    options.seed = seed;
    options.latency = absl::Microseconds(Int(0, 50));
    options.jitter = Int(0, 3);
    options.h2d_bytes_per_second = Chance(3) ? 1e6 : 1e9;
    options.d2h_bytes_per_second = Chance(3) ? 1e6 : 1e9;
    options.host_follows_compute = Chance(2);
    options.host_visible = Chance(2);
    options.copies_need_pinned_memory = Chance(2);
    options.host_call = absl::Microseconds(Int(0, 20));
    // Staging has to lock its own buffers, so a limit of nothing is a refusal, not a case for the
    // oracle.
    if (plan_.pin_policy == PinPolicy::kAuto && Chance(2)) {
      options.lockable_bytes =
          model_.total_bytes() / 2 + 2 * plan_.slots * plan_.slot_bytes + 65536;
    }
    if (with_failures) {
      int* const kinds[] = {&options.failures.copy,  &options.failures.record,
                            &options.failures.wait,  &options.failures.event,
                            &options.failures.arena, &options.failures.lock};
      *kinds[Int(0, 5)] = Chance(2) ? Int(1, 6) : Int(1, 60);
      asynchronous_ = Chance(2);
      options.failures.asynchronous = asynchronous_;
    }
    device_ = std::make_unique<SimulatedDevice>(options);
  }
};

bool UsesSlot(const SwapPlan& plan, int block) {
  if (plan.mode == TransferMode::kExchange) return plan.slots > 0;
  return plan.blocks[static_cast<size_t>(block)].residence == Residence::kStreamed;
}

// Reads every tensor of the lease as compute would, and compares it with the oracle. Sometimes
// trains it.
void UseLease(World& world, const BlockLease& lease) {
  const BlockProfile& block = world.model_.blocks[static_cast<size_t>(lease.block())];
  const std::vector<std::byte>& expected = world.oracle_->Read(lease.block());
  for (int index = 0; index < static_cast<int>(block.tensors.size()); ++index) {
    const absl::StatusOr<DeviceSpan> span = lease.Get(index);
    ASSERT_TRUE(span.ok()) << span.status();
    const TensorExtent& tensor = block.tensors[static_cast<size_t>(index)];
    ASSERT_EQ(span->bytes, tensor.bytes);
    const absl::Status used =
        world.device_->NoteComputeUse(*span, absl::Microseconds(world.Int(0, 30)));
    if (world.device_->failed()) return;  // an asynchronous failure: nothing holds any more
    ASSERT_TRUE(used.ok()) << used;
    ASSERT_EQ(
        std::memcmp(span->data, expected.data() + tensor.offset, static_cast<size_t>(tensor.bytes)),
        0)
        << "block " << lease.block() << " tensor " << index;
    if (world.plan_.mode == TransferMode::kExchange && world.Chance(3)) {
      const int64_t at = world.Int(0, static_cast<int>(tensor.bytes) - 1);
      const std::byte value = static_cast<std::byte>(world.Int(0, 127));
      ASSERT_TRUE(
          world.device_->NoteComputeUse(*span, absl::Microseconds(1), AccessKind::kWrite).ok());
      span->data[at] = value;
      world.oracle_->Write(lease.block(), tensor.offset + at, value);
    }
  }
}

struct Visit {
  int block;
  Direction direction;
};

// A pass as planned, or cut short, started over, with blocks skipped or seen twice, or in no order
// at all.
std::vector<Visit> MakePass(World& world, PassKind kind, bool regular) {
  const TransferSchedule& schedule =
      kind == PassKind::kTraining ? world.plan_.training : world.plan_.forward_only;
  std::vector<Visit> visits;
  std::vector<bool> seen(world.model_.blocks.size(), false);
  for (int block : schedule.visits) {
    const bool backward = kind == PassKind::kTraining && seen[static_cast<size_t>(block)];
    visits.push_back({block, backward ? Direction::kBackward : Direction::kForward});
    seen[static_cast<size_t>(block)] = !seen[static_cast<size_t>(block)];
  }
  if (regular) return visits;
  std::vector<Visit> odd;
  const int style = world.Int(0, 4);
  for (const Visit& visit : visits) {
    if (style == 0 && world.Chance(4)) continue;  // skipped
    odd.push_back(visit);
    if (style == 1 && world.Chance(4)) odd.push_back(visit);  // seen twice
  }
  if (style == 2) odd.resize(static_cast<size_t>(world.Int(0, static_cast<int>(odd.size()))));
  if (style == 3) std::shuffle(odd.begin(), odd.end(), world.random_);
  if (style == 4)
    odd.insert(odd.begin(), odd.begin(), odd.begin() + static_cast<int>(odd.size()) / 2);
  return odd;
}

// Whether every slot that `block` could go into is leased.
bool NoSlotLeft(const World& world, const std::deque<BlockLease>& leases, int block) {
  const SlotLayout layout = LayoutSlots(world.plan_, world.model_.blocks);
  const int64_t capacity = layout.capacity_of[static_cast<size_t>(block)];
  const auto leased = std::count_if(leases.begin(), leases.end(), [&](const BlockLease& lease) {
    return layout.capacity_of[static_cast<size_t>(lease.block())] == capacity;
  });
  return leased >= std::count(layout.slots.begin(), layout.slots.end(), capacity);
}

// Runs one pass, holding up to `depth` leases. Returns the first failure of the device.
absl::Status RunPass(World& world, PassKind kind, bool regular) {
  const absl::Status begun = world.swapper_->BeginPass(kind);
  if (!begun.ok()) return begun;
  const size_t depth = regular ? 1 : static_cast<size_t>(world.Int(1, 3));
  std::deque<BlockLease> leases;
  for (const Visit& visit : MakePass(world, kind, regular)) {
    while (leases.size() >= depth) leases.pop_front();
    absl::StatusOr<BlockLease> lease = world.swapper_->Acquire(visit.block, visit.direction);
    if (lease.status().code() == absl::StatusCode::kFailedPrecondition) {
      EXPECT_TRUE(NoSlotLeft(world, leases, visit.block)) << lease.status();
      leases.clear();
      lease = world.swapper_->Acquire(visit.block, visit.direction);
    }
    if (!lease.ok()) return lease.status();
    world.streamed_acquires_ += UsesSlot(world.plan_, visit.block);
    UseLease(world, *lease);
    if (::testing::Test::HasFatalFailure()) return absl::OkStatus();
    leases.push_back(*std::move(lease));
  }
  return absl::OkStatus();
}

void CheckEveryBlock(World& world) {
  for (int block = 0; block < static_cast<int>(world.model_.blocks.size()); ++block) {
    std::vector<std::byte> bytes(world.oracle_->Read(block).size());
    const absl::Status read = world.swapper_->ReadBlock(block, absl::MakeSpan(bytes));
    ASSERT_TRUE(read.ok()) << read;
    ASSERT_EQ(bytes, world.oracle_->Read(block)) << "block " << block;
  }
}

void CheckStats(const World& world) {
  const SwapStats stats = world.swapper_->stats();
  EXPECT_EQ(stats.hits + stats.late + stats.misses, world.streamed_acquires_);
  EXPECT_LE(stats.h2d_bytes, world.device_->copies(CopyDirection::kHostToDevice).bytes);
  EXPECT_LE(stats.d2h_bytes, world.device_->copies(CopyDirection::kDeviceToHost).bytes);
  EXPECT_EQ(stats.blocks_on_device + stats.blocks_on_host + stats.blocks_in_flight,
            static_cast<int>(world.model_.blocks.size()));
  EXPECT_EQ(stats.device_weight_bytes, world.device_->ledger().Snapshot().total_bytes);
  EXPECT_EQ(stats.device_weight_bytes,
            world.plan_.prediction.ring_bytes + world.plan_.prediction.resident_bytes);
}

// Regular passes cost exactly what the schedules say and never miss.
void CheckRegularPass(World& world, PassKind kind) {
  ASSERT_TRUE(world.swapper_->BeginPass(kind).ok());  // puts the initial blocks back
  const SwapStats before = world.swapper_->stats();
  const absl::Status run = RunPass(world, kind, /*regular=*/true);
  ASSERT_TRUE(run.ok()) << run;
  const SwapStats after = world.swapper_->stats();
  const TransferSchedule& schedule =
      kind == PassKind::kTraining ? world.plan_.training : world.plan_.forward_only;
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.h2d_transfers - before.h2d_transfers,
            static_cast<int64_t>(schedule.transfers.size()));
}

void RunSeed(uint64_t seed) {
  World world(seed, /*with_failures=*/false);
  absl::StatusOr<std::unique_ptr<BlockSwapper>> swapper = BlockSwapper::Create(
      world.device_.get(), world.plan_, world.model_.blocks, world.model_.reader());
  ASSERT_TRUE(swapper.ok()) << swapper.status();
  world.swapper_ = *std::move(swapper);
  const int passes = world.Int(3, 8);
  for (int pass = 0; pass < passes; ++pass) {
    const PassKind kind = world.Chance(3) ? PassKind::kForwardOnly : PassKind::kTraining;
    if (world.Chance(2)) {
      CheckRegularPass(world, kind);
    } else {
      const absl::Status run = RunPass(world, kind, /*regular=*/false);
      ASSERT_TRUE(run.ok()) << run;
    }
    if (::testing::Test::HasFatalFailure()) return;
    if (world.Chance(3)) CheckEveryBlock(world);
  }
  CheckEveryBlock(world);
  CheckStats(world);
  const std::vector<std::string> violations = world.device_->violations();
  ASSERT_TRUE(violations.empty()) << violations.front();
}

// A failure anywhere is an error that stays, gives all memory back, and never hurts what was right
// before.
void RunSeedWithFailure(uint64_t seed) {
  World world(seed, /*with_failures=*/true);
  absl::StatusOr<std::unique_ptr<BlockSwapper>> swapper = BlockSwapper::Create(
      world.device_.get(), world.plan_, world.model_.blocks, world.model_.reader());
  if (!swapper.ok()) {
    EXPECT_FALSE(swapper.status().message().empty());
  } else {
    world.swapper_ = *std::move(swapper);
    absl::Status run;
    for (int pass = 0; pass < 6 && run.ok(); ++pass) {
      const PassKind kind = world.Chance(3) ? PassKind::kForwardOnly : PassKind::kTraining;
      run = RunPass(world, kind, world.Chance(2));
      if (::testing::Test::HasFatalFailure()) return;
    }
    if (!run.ok()) {
      EXPECT_TRUE(world.device_->failed()) << run;
      EXPECT_EQ(world.swapper_->Acquire(0, Direction::kForward).status(), run);
      EXPECT_EQ(world.swapper_->BeginPass(PassKind::kTraining), run);
      EXPECT_EQ(world.swapper_->Drain(), run);
    }
    const std::vector<std::string> violations = world.device_->violations();
    const bool may_violate = world.asynchronous_ && world.device_->failed();
    ASSERT_TRUE(may_violate || violations.empty()) << violations.front();
    world.swapper_.reset();
  }
  EXPECT_EQ(world.device_->ledger().Snapshot().total_bytes, 0);
}

void RunSeeds(uint64_t first, void (*run)(uint64_t)) {
  uint64_t only = 0;
  const char* const chosen = std::getenv("BLOCKSWAP_TEST_SEED");
  if (chosen != nullptr && absl::SimpleAtoi(chosen, &only)) {
    SCOPED_TRACE(absl::StrCat("seed ", only));
    run(only);
    return;
  }
  for (uint64_t seed = first; seed < first + kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("BLOCKSWAP_TEST_SEED=", seed));
    run(seed);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(BlockSwapperPropertyTest, BytesAndOrderAreRightForEveryPlanAndEveryVisitingOrder) {
  RunSeeds(/*first=*/1, RunSeed);
}

TEST(BlockSwapperPropertyTest, AFailureAnywhereIsStickyAndLeavesNothingBehind) {
  RunSeeds(/*first=*/1000001, RunSeedWithFailure);
}

}  // namespace
}  // namespace blockswap::offload
