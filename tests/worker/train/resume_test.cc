// SPDX-License-Identifier: Apache-2.0
// Resuming in the same process: counters, rates, data order and bits are those of an unbroken run.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"
#include "worker/io/checkpoint_directory.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

using blockswap::testing::NullReporter;
using ::testing::HasSubstr;
using testing::ReadRun;
using testing::RunOptions;
using testing::RunResult;
using testing::TinyJob;
using testing::TinyJobOptions;
using testing::TrainTiny;

// Ends the run after `step` without another checkpoint, as a crash does.
ExitReport TrainUntil(const TinyJob& job, const std::string& name, int64_t step,
                      const RunOptions& options) {
  NullReporter reporter;
  reporter.after_step = [&](const StepReport& report) {
    if (report.step == step) reporter.stop = StopRequest::kNow;
  };
  return TrainTiny(job, name, options, &reporter);
}

void ExpectSameRun(const TinyJob& job, const std::string& name, const std::string& reference) {
  const RunResult run = ReadRun(job.output(name)), expected = ReadRun(job.output(reference));
  EXPECT_EQ(run.steps, expected.steps);
  EXPECT_EQ(run.epochs, expected.epochs);
  EXPECT_EQ(run.rates, expected.rates);
  EXPECT_EQ(run.losses, expected.losses);
  EXPECT_EQ(run.norms, expected.norms);
  EXPECT_FALSE(run.adapter_tensors.empty());
  EXPECT_TRUE(run.adapter_tensors == expected.adapter_tensors);
}

std::string StepDirectory(const TinyJob& job, const std::string& name, int64_t step) {
  return absl::StrFormat("%s/checkpoints/step-%08d", job.output(name), step);
}

// F007: 20 steps saved every 5 with accumulation 2, broken after 12: goes on at 11 with the rates
// of the unbroken run.
TEST(ResumeTest, GoesOnAtTheNextStepWithItsRateAndEpoch) {
  TinyJobOptions options;
  options.max_steps = 20;
  const TinyJob job(options);
  RunOptions run;
  run.overrides = {"training.gradient_accumulation_steps=2", "training.scheduler.type=cosine",
                   "training.scheduler.warmup_steps=3", "output.save_every_steps=5"};
  ASSERT_EQ(TrainTiny(job, "unbroken", run).code, ExitCode::kOk);
  ASSERT_EQ(TrainUntil(job, "broken", 12, run).code, ExitCode::kCancelled);
  NullReporter reporter;
  ASSERT_EQ(TrainTiny(job, "broken", run, &reporter).code, ExitCode::kOk);
  ASSERT_EQ(reporter.readies.size(), 1u);
  EXPECT_EQ(reporter.readies[0].start_step, 10);
  EXPECT_EQ(reporter.readies[0].total_steps, 20);
  EXPECT_EQ(reporter.steps.front().step, 11);
  EXPECT_EQ(reporter.checkpoint_steps, (std::vector<int64_t>{15, 20}));
  ExpectSameRun(job, "broken", "unbroken");
}

// F010: the saved step is cumulative over three breaks, and the job ends at the planned total.
TEST(ResumeTest, CountsOverSeveralBreaks) {
  TinyJobOptions options;
  options.max_steps = 14;
  const TinyJob job(options);
  RunOptions run;
  run.overrides = {"output.save_every_steps=2"};
  ASSERT_EQ(TrainTiny(job, "unbroken", run).code, ExitCode::kOk);
  for (const int64_t broken_after : {3, 7, 11}) {
    ASSERT_EQ(TrainUntil(job, "broken", broken_after, run).code, ExitCode::kCancelled);
    std::vector<std::string> skipped;
    const auto newest = FindNewestCheckpoint(job.output("broken") + "/checkpoints", &skipped);
    ASSERT_TRUE(newest.ok()) << newest.status();
    EXPECT_EQ(newest->step, broken_after - 1);
    EXPECT_EQ(newest->properties.at("step"), absl::StrCat(broken_after - 1));
    EXPECT_EQ(newest->properties.at("epoch"),
              absl::StrCat((broken_after - 2) / 5 + 1));  // 5 batches an epoch
    EXPECT_EQ(newest->properties.at("total_steps"), "14");
  }
  const ExitReport last = TrainTiny(job, "broken", run);
  ASSERT_EQ(last.code, ExitCode::kOk) << last.message;
  EXPECT_EQ(last.step, 14);
  ExpectSameRun(job, "broken", "unbroken");
}

// F011: a checkpoint at the last step of epoch 1 of 3; epochs 2 and 3 run in full.
TEST(ResumeTest, LosesNoEpochAtABoundary) {
  const TinyJob job;
  RunOptions run;
  run.overrides = {"training.max_epochs=3", "training.max_steps=1000", "output.save_every_steps=5"};
  ASSERT_EQ(TrainTiny(job, "unbroken", run).code, ExitCode::kOk);
  ASSERT_EQ(TrainUntil(job, "broken", 5, run).code, ExitCode::kCancelled);
  ASSERT_EQ(TrainTiny(job, "broken", run).code, ExitCode::kOk);
  EXPECT_EQ(ReadRun(job.output("broken")).epochs,
            (std::vector<int64_t>{1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3}));
  ExpectSameRun(job, "broken", "unbroken");
}

// F013: the newest checkpoints are broken in three ways: the newest complete one is taken and the
// others are named.
TEST(ResumeTest, FallsBackToTheNewestCompleteCheckpoint) {
  TinyJobOptions options;
  options.max_steps = 10;
  const TinyJob job(options);
  RunOptions run;
  run.overrides = {"output.save_every_steps=2", "output.keep_checkpoints=10"};
  ASSERT_EQ(TrainTiny(job, "unbroken", run).code, ExitCode::kOk);
  ASSERT_EQ(TrainUntil(job, "broken", 9, run).code, ExitCode::kCancelled);
  fs::remove(StepDirectory(job, "broken", 8) + "/manifest.json");
  const std::string state_6 = StepDirectory(job, "broken", 6) + "/state.safetensors";
  fs::resize_file(state_6, fs::file_size(state_6) / 2);
  const std::string state_4 = StepDirectory(job, "broken", 4) + "/state.safetensors";
  {
    std::fstream file(state_4, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(fs::file_size(state_4) / 2));
    file.write("\0\0\0\0\0\0\0\0", 8);
  }
  NullReporter reporter;
  ASSERT_EQ(TrainTiny(job, "broken", run, &reporter).code, ExitCode::kOk);
  EXPECT_EQ(reporter.readies.at(0).start_step, 2);
  EXPECT_THAT(
      reporter.readies[0].skipped_checkpoints,
      ::testing::UnorderedElementsAre(HasSubstr("step-00000008"), HasSubstr("step-00000006"),
                                      HasSubstr("step-00000004")));
  ExpectSameRun(job, "broken", "unbroken");
}

TEST(ResumeTest, AnotherBudgetGivesTheSameBits) {
  TinyJobOptions options;
  options.max_steps = 9;
  const TinyJob job(options);
  RunOptions run;
  run.overrides = {"output.save_every_steps=2"};
  ASSERT_EQ(TrainTiny(job, "unbroken", run).code, ExitCode::kOk);
  const std::vector<std::vector<std::string>> plans = {
      {"memory.blocks_to_swap=5", "memory.ring_size=1"},
      {"memory.blocks_to_swap=3", "memory.mode=exchange"},
      {"memory.blocks_to_swap=2", "memory.pinned_memory=never"}};
  int64_t broken_after = 3;
  for (const std::vector<std::string>& plan : plans) {
    RunOptions other = run;
    other.overrides.insert(other.overrides.end(), plan.begin(), plan.end());
    ASSERT_EQ(TrainUntil(job, "broken", broken_after, other).code, ExitCode::kCancelled);
    broken_after += 2;
  }
  ASSERT_EQ(TrainTiny(job, "broken", run).code, ExitCode::kOk);
  ExpectSameRun(job, "broken", "unbroken");
}

TEST(ResumeTest, CancelInMidBackwardKeepsTheLastCompletedStep) {
  TinyJobOptions options;
  options.max_steps = 6;
  const TinyJob job(options);
  ASSERT_EQ(TrainTiny(job, "unbroken").code, ExitCode::kOk);
  NullReporter reporter;
  int asked_since_step_3 = -1;
  reporter.after_step = [&](const StepReport& report) {
    if (report.step == 3) asked_since_step_3 = 0;
  };
  RunOptions run;
  run.stop_requested = [&] {  // asked between blocks: 6 forward visits, then backward ones
    return asked_since_step_3 >= 0 && ++asked_since_step_3 > 9 ? StopRequest::kCancel
                                                               : StopRequest::kNone;
  };
  const ExitReport cancelled = TrainTiny(job, "broken", run, &reporter);
  EXPECT_EQ(cancelled.code, ExitCode::kCancelled);
  EXPECT_EQ(cancelled.step, 3);
  EXPECT_EQ(reporter.checkpoint_steps, (std::vector<int64_t>{3}));
  ASSERT_EQ(TrainTiny(job, "broken").code, ExitCode::kOk);
  ExpectSameRun(job, "broken", "unbroken");
}

TEST(ResumeTest, SuspendedJobsSayThatTheyAre) {
  const TinyJob job;
  NullReporter reporter;
  reporter.after_step = [&](const StepReport& report) {
    if (report.step == 2) reporter.stop = StopRequest::kSuspend;
  };
  const ExitReport report = TrainTiny(job, "suspended", {}, &reporter);
  EXPECT_EQ(report.code, ExitCode::kSuspended);
  EXPECT_EQ(report.category, "");
  EXPECT_EQ(reporter.checkpoint_steps, (std::vector<int64_t>{2}));
}

TEST(ResumeTest, RefusesTheOutputsOfAnotherJob) {
  TinyJobOptions options;
  options.max_steps = 2;
  const TinyJob job(options);
  ASSERT_EQ(TrainTiny(job, "shared").code, ExitCode::kOk);
  RunOptions other;
  other.overrides = {"training.learning_rate=5e-3"};
  const ExitReport refused = TrainTiny(job, "shared", other);
  EXPECT_EQ(refused.code, ExitCode::kInvalidInput);
  EXPECT_THAT(refused.message, HasSubstr("training.learning_rate is 0.01"));
  EXPECT_EQ(ReadRun(job.output("shared")).steps.size(), 2u);
}

TEST(ResumeTest, AFinishedJobIsFinishedAgainWithoutASingleStep) {
  TinyJobOptions options;
  options.max_steps = 3;
  const TinyJob job(options);
  ASSERT_EQ(TrainTiny(job, "once").code, ExitCode::kOk);
  const RunResult first = ReadRun(job.output("once"));
  NullReporter reporter;
  EXPECT_EQ(TrainTiny(job, "once", {}, &reporter).code, ExitCode::kOk);
  EXPECT_TRUE(reporter.steps.empty());
  EXPECT_TRUE(ReadRun(job.output("once")).adapter_tensors == first.adapter_tensors);
}

}  // namespace
}  // namespace blockswap::worker
