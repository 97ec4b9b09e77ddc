// SPDX-License-Identifier: Apache-2.0
// Plans that change while a job runs: by request, by what its steps show, by memory that goes away.
// Whatever happens, the result has the bits of the undisturbed run.
#include <atomic>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/worker/testing/plan_edits.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"

namespace blockswap::worker {
namespace {

using blockswap::testing::NullReporter;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReadRun;
using testing::RunOptions;
using testing::RunResult;
using testing::TinyJob;
using testing::TinyJobOptions;
using testing::TrainTiny;

std::vector<std::string> ReasonsOf(const NullReporter& reporter) {
  std::vector<std::string> reasons;
  for (const PlanReport& plan : reporter.replans) reasons.push_back(plan.reason);
  return reasons;
}

nlohmann::json PlanFile(const TinyJob& job, const std::string& name) {
  std::ifstream file(job.output(name) + "/plan.json");
  return nlohmann::json::parse(file);
}

// The undisturbed run of a tiny job, and what others are held to.
class ElasticTest : public ::testing::Test {
 protected:
  // The references are trained once for all tests.
  static void SetUpTestSuite() {
    shared_job_ = new TinyJob(Options());
    NullReporter reporter;
    EXPECT_EQ(TrainTiny(*shared_job_, "resident", {}, &reporter).code, ExitCode::kOk);
    resident_ = ReadRun(shared_job_->output("resident"));
    resident_peak_ = reporter.steps.back().device_bytes_peak;
    RunOptions least;
    least.overrides = {"memory.blocks_to_swap=5", "memory.ring_size=1"};
    NullReporter streamed;
    EXPECT_EQ(TrainTiny(*shared_job_, "least", least, &streamed).code, ExitCode::kOk);
    least_peak_ = streamed.steps.back().device_bytes_peak;
    EXPECT_LT(least_peak_, resident_peak_);
  }
  static void TearDownTestSuite() {
    delete shared_job_;
    shared_job_ = nullptr;
  }

  static TinyJobOptions Options() {
    TinyJobOptions options;
    options.max_steps = 6;
    return options;
  }

  void ExpectResult(const std::string& name) {
    const RunResult run = ReadRun(job_.output(name));
    EXPECT_EQ(run.losses, resident_.losses) << name;
    EXPECT_EQ(run.norms, resident_.norms) << name;
    EXPECT_TRUE(run.adapter_tensors == resident_.adapter_tensors) << name;
  }

  static inline TinyJob* shared_job_ = nullptr;
  static inline RunResult resident_;
  static inline int64_t resident_peak_ = 0, least_peak_ = 0;
  const TinyJob& job_ = *shared_job_;
};

TEST_F(ElasticTest, NewSettingsTakeOverBetweenSteps) {
  NullReporter reporter;
  reporter.after_step = [&](const StepReport& step) {
    MemoryConfig memory;
    memory.blocks_to_swap = step.step == 1 ? 5 : step.step == 2 ? 2 : step.step == 3 ? 0 : 4;
    if (step.step == 4) memory.ring_size = 1;
    if (step.step <= 4) reporter.memory_update = memory;
  };
  const ExitReport report = TrainTiny(job_, "updates", {}, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  ExpectResult("updates");
  EXPECT_THAT(ReasonsOf(reporter),
              ElementsAre("MEMORY_UPDATED", "MEMORY_UPDATED", "MEMORY_UPDATED", "MEMORY_UPDATED"));
  const nlohmann::json plan = PlanFile(job_, "updates");
  ASSERT_EQ(plan["history"].size(), 5u);
  EXPECT_EQ(plan["history"][0]["reason"], "START");
  EXPECT_EQ(plan["history"][1]["step"], 1);
  EXPECT_EQ(plan["history"][1]["blocks_to_swap"], 5);
  EXPECT_EQ(plan["history"][4]["slots"], 1);
  EXPECT_EQ(plan["blocks_to_swap"], 4);
}

TEST_F(ElasticTest, ASmallerBudgetHoldsFromTheNextStepOn) {
  const int64_t budget = (resident_peak_ + least_peak_) / 2;
  NullReporter reporter;
  offload::MemoryLedger* ledger = nullptr;
  RunOptions run;
  run.overrides = {"memory.blocks_to_swap=auto"};
  run.host.before_charge = [&](offload::MemoryLedger& charged) { ledger = &charged; };
  int64_t budget_seen = 0, in_use = 0;
  reporter.after_step = [&](const StepReport& step) {
    if (step.step == 2) {
      reporter.memory_update = MemoryConfig();
      reporter.memory_update->vram_budget_bytes = budget;
    } else if (step.step == 4) {
      budget_seen = ledger->Snapshot().budget_bytes;
      in_use = ledger->Snapshot().total_peak_bytes;
    }
  };
  const ExitReport report = TrainTiny(job_, "budget", run, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  ExpectResult("budget");
  EXPECT_THAT(ReasonsOf(reporter), Contains("MEMORY_UPDATED"));
  EXPECT_EQ(budget_seen, budget);
  EXPECT_LE(in_use, budget);
}

TEST_F(ElasticTest, SettingsThatDoNotFitLeaveThePlanAlone) {
  NullReporter reporter;
  reporter.after_step = [&](const StepReport& step) {
    if (step.step != 2) return;
    reporter.memory_update = MemoryConfig();
    reporter.memory_update->vram_budget_bytes = 64 << 10;
  };
  const ExitReport report = TrainTiny(job_, "refused", {}, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  ExpectResult("refused");
  EXPECT_THAT(reporter.replans, IsEmpty());
  EXPECT_THAT(reporter.warnings, Contains(HasSubstr("MEMORY_UPDATE_REFUSED")));
  EXPECT_EQ(PlanFile(job_, "refused")["history"].size(), 1u);
}

// Somebody takes device memory away for good, in the middle of a step.
TEST_F(ElasticTest, ABudgetLoweredUnderneathShrinksThePlan) {
  const int64_t budget = least_peak_ + (resident_peak_ - least_peak_) / 3;
  NullReporter reporter;
  std::atomic<bool> lowered{false};
  int charges = 0;
  RunOptions run;
  run.host.before_charge = [&](offload::MemoryLedger& ledger) {
    if (reporter.steps.size() == 2 && ++charges == 40) {
      ledger.SetBudget(budget);
      lowered = true;
    }
  };
  const ExitReport report = TrainTiny(job_, "lowered", run, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  EXPECT_TRUE(lowered);
  ExpectResult("lowered");
  EXPECT_THAT(ReasonsOf(reporter), Contains("OUT_OF_MEMORY"));
  EXPECT_GT(PlanFile(job_, "lowered")["blocks_to_swap"].get<int>(), 0);
}

// The same between steps: seen before anything fails.
TEST_F(ElasticTest, LessFreeMemoryIsSeenBeforeItIsMissed) {
  const int64_t budget = least_peak_ + (resident_peak_ - least_peak_) / 2;
  NullReporter reporter;
  offload::MemoryLedger* ledger = nullptr;
  RunOptions run;
  run.overrides = {"memory.blocks_to_swap=auto"};
  run.host.before_charge = [&](offload::MemoryLedger& charged) { ledger = &charged; };
  reporter.after_step = [&](const StepReport& step) {
    if (step.step == 3) ledger->SetBudget(budget);
  };
  const ExitReport report = TrainTiny(job_, "less", run, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  ExpectResult("less");
  EXPECT_THAT(ReasonsOf(reporter), Contains("LESS_DEVICE_MEMORY"));
}

// Every allocation of a step fails once: the step is undone and repeated, the result is the same.
TEST_F(ElasticTest, AnyAllocationOfAStepMayFail) {
  int64_t charges = 0;
  {
    NullReporter reporter;
    RunOptions run;
    run.host.before_charge = [&](offload::MemoryLedger&) {
      if (reporter.steps.size() == 2) ++charges;
    };
    ASSERT_EQ(TrainTiny(job_, "count", run, &reporter).code, ExitCode::kOk);
  }
  ASSERT_GT(charges, 200);
  // Some two dozen places, spread over the step.
  const int64_t stride = charges / 23;
  for (int64_t fails = 1; fails <= charges; fails += stride) {
    NullReporter reporter;
    int64_t seen = 0;
    RunOptions run;
    run.host.before_charge = [&](offload::MemoryLedger& ledger) {
      if (reporter.steps.size() != 2) return;
      ++seen;
      // All that is in use and nothing more, until the next allocation.
      if (seen == fails) ledger.SetBudget(ledger.Snapshot().total_bytes);
      if (seen == fails + 1) ledger.SetBudget(0);
    };
    const std::string name = absl::StrCat("fails-", fails);
    const ExitReport report = TrainTiny(job_, name, run, &reporter);
    ASSERT_EQ(report.code, ExitCode::kOk) << name << ": " << report.message;
    ExpectResult(name);
    EXPECT_THAT(ReasonsOf(reporter), Contains("OUT_OF_MEMORY")) << name;
    if (HasFailure()) break;
  }
}

TEST_F(ElasticTest, OnlyAPlanThatCannotShrinkFailsTheJob) {
  NullReporter reporter;
  RunOptions run;
  run.host.before_charge = [&](offload::MemoryLedger& ledger) {
    if (reporter.steps.size() == 3) ledger.SetBudget(4096);
  };
  const ExitReport report = TrainTiny(job_, "gone", run, &reporter);
  EXPECT_EQ(report.code, ExitCode::kDeviceOutOfMemory) << report.message;
  EXPECT_THAT(report.message, HasSubstr("needed"));
  EXPECT_THAT(report.message, HasSubstr("available"));
  ASSERT_EQ(TrainTiny(job_, "gone").code, ExitCode::kOk);
  ExpectResult("gone");
}

// Samples under a budget of their own, and the training plan after them.
TEST_F(ElasticTest, SamplingHasItsOwnPlan) {
  const int64_t budget = least_peak_ + (resident_peak_ - least_peak_) / 2;
  NullReporter reporter;
  RunOptions run;
  run.overrides = {absl::StrCat("sampling.prompts=", job_.root(), "/prompts.txt"),
                   "sampling.every_steps=3", absl::StrCat("sampling.vram_budget=", budget)};
  const ExitReport report = TrainTiny(job_, "sampling", run, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  ExpectResult("sampling");
  EXPECT_THAT(ReasonsOf(reporter),
              ElementsAre("SAMPLING", "TRAINING", "SAMPLING", "TRAINING", "SAMPLING", "TRAINING"));
  EXPECT_EQ(PlanFile(job_, "sampling")["blocks_to_swap"], 0);
  RunOptions plain;
  plain.overrides = {run.overrides[0], run.overrides[1]};
  ASSERT_EQ(TrainTiny(job_, "sampling-plain", plain).code, ExitCode::kOk);
  const auto samples = [&](const std::string& name) {
    std::ifstream file(job_.output(name) + "/samples/step-00000003.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_FALSE(samples("sampling").empty());
  EXPECT_TRUE(samples("sampling") == samples("sampling-plain"));
}

// A prediction that is too low is corrected by what the first step shows.
TEST_F(ElasticTest, AMeasuredPeakCorrectsThePrediction) {
  NullReporter reporter;
  RunOptions run;
  run.overrides = {"memory.blocks_to_swap=auto", "memory.checkpointing=on",
                   absl::StrCat("memory.vram_budget=", resident_peak_)};
  int plans = 0;
  run.edit_plan = [&plans](offload::SwapPlan* plan) {
    if (plans++ == 0) plan->prediction.device_bytes -= 256 << 10;
  };
  const ExitReport report = TrainTiny(job_, "measured", run, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  ExpectResult("measured");
  std::ifstream log(job_.output("measured") + "/log.txt");
  const std::string text(std::istreambuf_iterator<char>(log), {});
  EXPECT_THAT(text, HasSubstr("the device memory peak of step 1"));
}

// F071 and the daily case: keep, offload and micro-batches together, changed on the way.
TEST_F(ElasticTest, PlansOfEveryKindFollowEachOther) {
  NullReporter reporter;
  int plans = 0;
  RunOptions run;
  run.edit_plan = [&](offload::SwapPlan* plan) {
    switch (plans++ % 4) {
      case 0:
        testing::KeepActivations(plan, 1);
        break;
      case 1:
        testing::OffloadBoundaries(plan);
        break;
      case 2:
        testing::KeepActivations(plan, 2);
        testing::OffloadBoundaries(plan, 2);
        break;
      default:
        break;
    }
  };
  reporter.after_step = [&](const StepReport& step) {
    reporter.memory_update = MemoryConfig();
    reporter.memory_update->blocks_to_swap = static_cast<int>(step.step % 6);
  };
  const ExitReport report = TrainTiny(job_, "kinds", run, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  ExpectResult("kinds");
  EXPECT_EQ(reporter.replans.size(), 5u);
}

}  // namespace
}  // namespace blockswap::worker
