// SPDX-License-Identifier: Apache-2.0
// F082: jobs that died late, or at the start of an epoch: memory crept up with many bucket shapes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/plan/planner.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"

namespace blockswap::worker {
namespace {

using blockswap::testing::NullReporter;
using ::testing::HasSubstr;
using testing::TinyJob;
using testing::TinyJobOptions;
using testing::TrainTiny;

constexpr int64_t kShapes = 12;
constexpr int64_t kEpochs = 3;

TinyJobOptions TwelveShapes() {
  TinyJobOptions options;
  for (const int64_t height : {2, 4, 6, 8}) {
    for (const int64_t width : {4, 6, 8}) options.latent_sizes.emplace_back(height, width);
  }
  options.items = static_cast<int>(kShapes);
  options.batch_size = 1;
  options.ragged_text = false;
  options.max_steps = kShapes * kEpochs;
  return options;
}

TEST(BucketShapesTest, PeaksDoNotGrowAfterEveryShapeWasSeenOnce) {
  const TinyJob job(TwelveShapes());
  for (const int blocks : {0, 4}) {
    NullReporter reporter;
    const ExitReport report =
        TrainTiny(job, absl::StrCat("swap-", blocks),
                  {{absl::StrCat("memory.blocks_to_swap=", blocks)}, {}, {}, {}}, &reporter);
    ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
    ASSERT_EQ(static_cast<int64_t>(reporter.steps.size()), kShapes * kEpochs);
    int64_t first_epoch = 0, later = 0;
    for (const StepReport& step : reporter.steps) {
      int64_t& peak = step.epoch == 1 ? first_epoch : later;
      peak = std::max(peak, step.device_bytes_peak);
    }
    EXPECT_GT(first_epoch, 0);
    EXPECT_LE(static_cast<double>(later), 1.02 * static_cast<double>(first_epoch)) << blocks;
  }
}

// What a dry run says is true of the whole run: it plans for the largest bucket and names it.
TEST(BucketShapesTest, APlanIsForTheLargestBucketAndSaysWhich) {
  const TinyJob job(TwelveShapes());
  // One plan whatever the speeds are: without them the dry run keeps no activations.
  const std::vector<std::string> settings = {"memory.blocks_to_swap=4", "memory.checkpointing=on"};
  const absl::StatusOr<JobInspection> inspected = job.Open(settings);
  ASSERT_TRUE(inspected.ok()) << inspected.status();
  EXPECT_EQ(inspected->dataset->buckets().size(), static_cast<size_t>(kShapes));
  EXPECT_THAT(LargestBatchText(*inspected),
              HasSubstr("the largest of 12 buckets, 64x64 in batches of 1 (16 image and 4 text"));
  const absl::StatusOr<offload::SwapPlan> plan =
      offload::Plan(MakePlanRequest(*inspected, Machine()));
  ASSERT_TRUE(plan.ok()) << plan.status();
  NullReporter reporter;
  ASSERT_EQ(TrainTiny(job, "run", {settings, {}, {}, {}}, &reporter).code, ExitCode::kOk);
  ASSERT_FALSE(reporter.readies.empty());
  EXPECT_THAT(reporter.readies.front().plan_text, HasSubstr("the largest of 12 buckets, 64x64"));
  // Tiny tensors: a constant counts beside the share that large ones are held to.
  constexpr int64_t kSlack = 32 << 10;
  EXPECT_LE(reporter.steps.back().device_bytes_peak, plan->prediction.device_bytes + kSlack);
}

}  // namespace
}  // namespace blockswap::worker
