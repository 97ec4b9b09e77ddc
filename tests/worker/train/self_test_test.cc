// SPDX-License-Identifier: Apache-2.0
#include "worker/train/self_test.h"

#include <fstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/model/tiny_model.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"

namespace blockswap::worker {
namespace {

using offload::Direction;
using offload::PassKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeHostDevice;
using testing::MakeInputs;
using testing::MakeRandomAdapter;
using testing::MakeSwapper;
using testing::MakeTinyCheckpoint;
using testing::Placement;
using testing::RunOptions;
using testing::TinyCheckpoint;
using testing::TinyJob;
using testing::TinyJobOptions;
using testing::TrainTiny;

class SelfTestTest : public ::testing::Test {
 protected:
  SelfTestTest()
      : checkpoint_(MakeTinyCheckpoint({}, Dtype::kBFloat16)),
        device_(MakeHostDevice()),
        model_(*CreateModel(checkpoint_.model, *checkpoint_.source, at::kCPU)),
        adapter_(MakeRandomAdapter(checkpoint_.model, /*with_gradients=*/true)),
        inputs_(MakeInputs(checkpoint_.model, 1, {{1, 3, 5}}, 7)) {}

  void Swap(const Placement& placement) {
    swapper_ = MakeSwapper(checkpoint_, placement, device_.get());
  }

  absl::StatusOr<SelfTestResult> Run() {
    const WalkContext context{model_.get(), &checkpoint_.model, swapper_.get(), &adapter_,
                              at::kCPU};
    const SelfTestSubject subject{
        device_.get(), &checkpoint_.profiles, [&](int block, absl::Span<std::byte> bytes) {
          const size_t index = static_cast<size_t>(block);
          return ReadPackedBlock(*checkpoint_.source, checkpoint_.model.blocks[index],
                                 checkpoint_.profiles[index], checkpoint_.model.dtype, bytes);
        }};
    const int count = static_cast<int>(checkpoint_.profiles.size());
    return RunSelfTest(
        context, subject,
        BlocksToTest(swapper_->plan(), {{.name = "blocks", .first = 0, .count = count}}), inputs_);
  }

  // Flips one bit of the block as the device holds it now.
  void DamageOnDevice(int block) {
    ASSERT_TRUE(swapper_->BeginPass(PassKind::kForwardOnly).ok());
    const auto lease = swapper_->Acquire(block, Direction::kForward);
    ASSERT_TRUE(lease.ok()) << lease.status();
    const auto tensor = lease->Get(0);
    ASSERT_TRUE(tensor.ok());
    tensor->data[1] ^= std::byte{0x40};
  }

  const TinyCheckpoint checkpoint_;
  const std::unique_ptr<offload::HostDevice> device_;
  const std::unique_ptr<Model> model_;
  Adapter adapter_;
  const ModelInputs inputs_;
  std::unique_ptr<offload::BlockSwapper> swapper_;
};

TEST_F(SelfTestTest, TakesFirstMiddleAndLastStreamedBlock) {
  Swap({4, 2});
  const std::vector<int> streamed = swapper_->plan().streamed_blocks();
  ASSERT_EQ(streamed.size(), 4u);
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->compared, ElementsAre(streamed[0], streamed[2], streamed[3]));
  EXPECT_THAT(result->left_out, ElementsAre());
}

TEST_F(SelfTestTest, NothingStreamedIsNothingToTest) {
  Swap({0, 2});
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->compared.empty());
}

TEST_F(SelfTestTest, LeavesGradientsZeroAndMemoryAsItWas) {
  Swap({4, 2});
  const int64_t before = device_->ledger().Snapshot().total_bytes;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(adapter_.gradients().abs().max().item<float>(), 0);
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes, before);
}

TEST_F(SelfTestTest, ADamagedSlotIsFoundWithBlockAndBothPlans) {
  Swap({1, 1});  // one streamed block stays in its slot
  const int block = swapper_->plan().streamed_blocks().front();
  DamageOnDevice(block);
  const auto result = Run();
  ASSERT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  const std::string message(result.status().message());
  EXPECT_THAT(message, HasSubstr(absl::StrCat("block ", block)));
  EXPECT_THAT(message, HasSubstr("1 blocks swapped over 1 slots"));
  EXPECT_THAT(message, HasSubstr("resident by itself"));
}

TEST_F(SelfTestTest, ABlockForWhoseCopyThereIsNoRoomIsLeftOut) {
  Swap({4, 2});
  device_->ledger().SetBudget(device_->ledger().Snapshot().total_bytes + 1);
  const auto result = Run();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->compared.empty());
  EXPECT_EQ(result->left_out.size(), 3u);
}

// The job's own way: a link that damages what it carries ends the job before its first step.
TEST(SelfTestJobTest, ALinkThatFlipsABitEndsTheJobBeforeItsFirstStep) {
  TinyJobOptions options;
  options.max_steps = 2;
  const TinyJob job(options);
  std::vector<std::byte> damaged;
  RunOptions run;
  run.overrides = {"memory.blocks_to_swap=1", "memory.ring_size=1"};
  run.host.h2d_source = [&](offload::DeviceSpan destination, const std::byte* source) {
    damaged.assign(source, source + destination.bytes);
    damaged[1] ^= std::byte{0x40};
    return static_cast<const std::byte*>(damaged.data());
  };
  blockswap::testing::NullReporter reporter;
  const ExitReport report = TrainTiny(job, "damaged", run, &reporter);
  EXPECT_EQ(report.code, ExitCode::kDeviceFault) << report.message;
  EXPECT_EQ(report.reason, "SELF_TEST_FAILED");
  EXPECT_TRUE(reporter.steps.empty());
}

TEST(SelfTestJobTest, ItIsLoggedAndCountsInNoStep) {
  TinyJobOptions options;
  options.max_steps = 2;
  const TinyJob job(options);
  RunOptions run;
  run.overrides = {"memory.blocks_to_swap=4"};
  blockswap::testing::NullReporter reporter;
  ASSERT_EQ(TrainTiny(job, "logged", run, &reporter).code, ExitCode::kOk);
  std::ifstream log(job.output("logged") + "/log.txt");
  const std::string text(std::istreambuf_iterator<char>(log), {});
  EXPECT_THAT(text, HasSubstr("have the same bits streamed and resident"));
  ASSERT_EQ(reporter.steps.size(), 2u);
  EXPECT_EQ(reporter.steps[0].swap.h2d_bytes * 2, reporter.steps[1].swap.h2d_bytes);
  EXPECT_EQ(reporter.steps[1].swap.misses, 0);
}

}  // namespace
}  // namespace blockswap::worker
