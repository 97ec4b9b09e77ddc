// SPDX-License-Identifier: Apache-2.0
// Non-finite numbers and gradients without effect end a job or leave a step out; they never reach
// the adapter.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"
#include "worker/io/checkpoint_directory.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

using blockswap::testing::NullReporter;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::ReadRun;
using testing::RunOptions;
using testing::TinyJob;
using testing::TinyJobOptions;
using testing::TrainTiny;

// The step (from 1) and the epoch position at which seed 7 shows item `item` first.
int64_t FirstStepWith(const TinyJob& job, int item, int accumulation) {
  const absl::StatusOr<JobInspection> opened = job.Open();
  EXPECT_TRUE(opened.ok()) << opened.status();
  const std::string name = absl::StrFormat("item_%04d", item);
  for (int64_t batch = 0; batch < opened->dataset->batches_per_epoch(); ++batch) {
    for (const int64_t index : opened->dataset->BatchAt(7, batch).items) {
      if (opened->dataset->items()[static_cast<size_t>(index)].name == name)
        return batch / accumulation + 1;
    }
  }
  ADD_FAILURE() << name << " is in no batch";
  return 0;
}

void ExpectFiniteState(const std::string& output) {
  std::vector<std::string> skipped;
  const auto newest = FindNewestCheckpoint(output + "/checkpoints", &skipped);
  ASSERT_TRUE(newest.ok()) << newest.status();
  const auto file = SafetensorsFile::Open(newest->directory + "/state.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  for (const auto& [name, entry] : (*file)->tensors()) {
    const auto bytes = (*file)->bytes(entry);
    const float* values = reinterpret_cast<const float*>(bytes.data());
    for (size_t i = 0; i < bytes.size() / sizeof(float); ++i)
      ASSERT_TRUE(std::isfinite(values[i])) << name;
  }
}

// F062: a cache with NaN, one with infinity; alone and in the middle of an accumulation group.
TEST(NumericsTest, ANonFiniteItemStopsTheJobAndIsNamed) {
  for (const float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const int accumulation : {1, 2}) {
      const TinyJob job;
      job.PoisonLatent(4, poison);
      const int64_t bad_step = FirstStepWith(job, 4, accumulation);
      NullReporter reporter;
      RunOptions run;
      run.overrides = {absl::StrCat("training.gradient_accumulation_steps=", accumulation)};
      const ExitReport report = TrainTiny(job, "nan", run, &reporter);
      EXPECT_EQ(report.code, ExitCode::kNumerics) << report.message;
      EXPECT_EQ(report.category, "NUMERICS");
      EXPECT_EQ(report.reason, "NONFINITE_LOSS");
      EXPECT_THAT(report.message, HasSubstr("item_0004"));
      EXPECT_THAT(report.message, HasSubstr(absl::StrCat("step ", bad_step)));
      EXPECT_EQ(report.step, bad_step - 1);
      EXPECT_EQ(static_cast<int64_t>(reporter.steps.size()), bad_step - 1);
      if (bad_step > 1) ExpectFiniteState(job.output("nan"));  // the last good state was kept
    }
  }
}

TEST(NumericsTest, SkippingLeavesTheStepOutAndGoesOn) {
  TinyJobOptions options;
  options.max_steps = 5;  // one epoch
  const TinyJob job(options);
  job.PoisonLatent(4, std::numeric_limits<float>::quiet_NaN());
  const int64_t bad_step = FirstStepWith(job, 4, 1);
  NullReporter reporter;
  RunOptions run;
  run.overrides = {"training.on_nonfinite=skip", "output.save_every_steps=1"};
  const ExitReport report = TrainTiny(job, "skip", run, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  EXPECT_THAT(reporter.warnings, Contains(HasSubstr("item_0004")));
  EXPECT_EQ(ReadRun(job.output("skip")).losses.at(static_cast<size_t>(bad_step - 1)), "null");
  std::vector<std::string> skipped;
  const auto newest = FindNewestCheckpoint(job.output("skip") + "/checkpoints", &skipped);
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->properties.at("updates"), "4");
  EXPECT_EQ(newest->properties.at("steps_left_out"), "1");
  ExpectFiniteState(job.output("skip"));
}

TEST(NumericsTest, ThreeSkippedStepsInARowEndTheJob) {
  const TinyJob job;
  for (int item = 0; item < 9; ++item)
    job.PoisonLatent(item, std::numeric_limits<float>::infinity());
  NullReporter reporter;
  RunOptions run;
  run.overrides = {"training.on_nonfinite=skip"};
  const ExitReport report = TrainTiny(job, "all-bad", run, &reporter);
  EXPECT_EQ(report.code, ExitCode::kNumerics);
  EXPECT_EQ(report.step, 2);
}

// F062: a learning rate of 1e6 is refused; a trainer given it all the same keeps nothing that is
// not finite, whatever step notices.
TEST(NumericsTest, AnAbsurdLearningRateNeverSavesNonFiniteValues) {
  TinyJobOptions options;
  options.max_steps = 20;
  const TinyJob job(options);
  const auto refused = job.Open({"training.learning_rate=1e6"});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("training.learning_rate"));

  RunOptions run;
  run.overrides = {"output.save_every_steps=1"};
  run.edit = [](JobInspection* opened) { opened->config.training.learning_rate = 1e6; };
  const ExitReport report = TrainTiny(job, "absurd", run);
  EXPECT_THAT(report.code, AnyOf(ExitCode::kNumerics, ExitCode::kOk)) << report.message;
  ExpectFiniteState(job.output("absurd"));
}

// F061: an adapter that cannot learn is an error, not a quiet success.
TEST(NumericsTest, AGradientOfZeroTwiceIsAnError) {
  TinyJobOptions options;
  options.zero_head = true;
  const TinyJob job(options);
  const ExitReport report = TrainTiny(job, "zero");
  EXPECT_EQ(report.code, ExitCode::kNumerics) << report.message;
  EXPECT_EQ(report.reason, "GRADIENT_IS_ZERO");
  EXPECT_EQ(report.step, 1);
}

// F061: swapped by none, half and all but one at a high rate, the loss falls and is the same.
TEST(NumericsTest, SwappedTrainingHasItsEffect) {
  TinyJobOptions options;
  options.max_steps = 20;
  options.items = 2;
  const TinyJob job(options);
  std::vector<std::string> last_losses;
  for (const int blocks : {0, 3, 5}) {
    RunOptions run;
    run.overrides = {absl::StrCat("memory.blocks_to_swap=", blocks), "training.learning_rate=3e-2"};
    const std::string name = absl::StrCat("effect-", blocks);
    ASSERT_EQ(TrainTiny(job, name, run).code, ExitCode::kOk);
    const auto result = ReadRun(job.output(name));
    EXPECT_LT(std::stod(result.losses.back()), 0.8 * std::stod(result.losses.front()));
    last_losses.push_back(result.losses.back());
  }
  EXPECT_EQ(last_losses[1], last_losses[0]);
  EXPECT_EQ(last_losses[2], last_losses[0]);
}

}  // namespace
}  // namespace blockswap::worker
