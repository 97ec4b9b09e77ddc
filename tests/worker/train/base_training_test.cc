// SPDX-License-Identifier: Apache-2.0
// Full fine-tuning: the same bits for every plan and across breaks, a budget below what resident
// training takes, and a model file that is the input's with other values.
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"
#include "worker/family/base_layout.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

using blockswap::testing::NullReporter;
using ::testing::HasSubstr;
using testing::ReadRun;
using testing::RunOptions;
using testing::RunResult;
using testing::TinyJob;
using testing::TinyJobOptions;
using testing::TrainTiny;

constexpr int kBlocks = 6;

TinyJobOptions BaseJob(int64_t steps, const std::string& dtype = "bf16") {
  TinyJobOptions options;
  options.trains_base = true;
  options.max_steps = steps;
  options.dtype = dtype;
  return options;
}

RunOptions With(std::vector<std::string> overrides) {
  RunOptions run;
  run.overrides = std::move(overrides);
  return run;
}

void ExpectSameRun(const TinyJob& job, const std::string& name, const std::string& reference) {
  const RunResult run = ReadRun(job.output(name)), expected = ReadRun(job.output(reference));
  EXPECT_EQ(run.steps, expected.steps) << name;
  EXPECT_EQ(run.losses, expected.losses) << name;
  EXPECT_EQ(run.norms, expected.norms) << name;
  EXPECT_FALSE(run.adapter_tensors.empty()) << name;
  EXPECT_TRUE(run.adapter_tensors == expected.adapter_tensors) << name;
}

void ExpectEqualBits(const TinyJob& job, const std::string& name,
                     std::vector<std::string> overrides,
                     const offload::HostDeviceOptions& host = {}) {
  RunOptions run = With(std::move(overrides));
  run.host = host;
  const ExitReport report = TrainTiny(job, name, run);
  ASSERT_EQ(report.code, ExitCode::kOk) << name << ": " << report.message;
  ExpectSameRun(job, name, "resident");
}

std::string StateOf(const TinyJob& job, const std::string& name, int64_t step) {
  std::ifstream in(
      absl::StrFormat("%s/checkpoints/step-%08d/state.safetensors", job.output(name), step),
      std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  EXPECT_FALSE(content.str().empty()) << step;
  return content.str();
}

// facts/offload.md F22, F27, F28, F52: gradients read too early, values gone at step 2, memory
// reused while gradients live, parameters and gradients on two devices. Each would show in the
// bits.
TEST(BaseTrainingTest, EveryNumberOfStreamedBlocksAndEveryRingGivesTheSameBits) {
  for (const char* dtype : {"bf16", "fp32"}) {
    const TinyJob job(BaseJob(4, dtype));
    ASSERT_EQ(TrainTiny(job, "resident").code, ExitCode::kOk);
    for (int blocks = 1; blocks < kBlocks; ++blocks) {
      for (int ring = 1; ring <= 3; ++ring) {
        ExpectEqualBits(job, absl::StrCat("ring-", blocks, "-", ring),
                        {absl::StrCat("memory.blocks_to_swap=", blocks),
                         absl::StrCat("memory.ring_size=", ring)});
      }
    }
  }
}

TEST(BaseTrainingTest, AccumulationClippingSamplingAndSlowCopiesGiveTheSameBits) {
  const TinyJob job(BaseJob(5));
  const std::vector<std::string> common = {"training.gradient_accumulation_steps=2",
                                           "training.max_grad_norm=0.05"};
  ASSERT_EQ(TrainTiny(job, "resident", With(common)).code, ExitCode::kOk);
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  offload::HostDeviceOptions slow;
  slow.latency = absl::Milliseconds(2);
  ExpectEqualBits(job, "accumulation", with({"memory.blocks_to_swap=5"}));
  ExpectEqualBits(job, "slow", with({"memory.blocks_to_swap=4", "memory.ring_size=1"}), slow);
  ExpectEqualBits(job, "pageable", with({"memory.blocks_to_swap=3", "memory.pinned_memory=never"}));
  ExpectEqualBits(job, "sampling",
                  with({"memory.blocks_to_swap=3", "sampling.every_steps=2",
                        absl::StrCat("sampling.prompts=", job.root(), "/prompts.txt")}));
}

// Weights, gradients and both moments of a resident run are far above this budget.
TEST(BaseTrainingTest, TrainsUnderABudgetBelowItsWeightsGradientsAndMoments) {
  const TinyJob job(BaseJob(4));
  const auto opened = job.Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  int64_t elements = 0;
  for (const BaseUnit& unit : BaseUnitsOf(opened->model)) elements += unit.elements;
  const int64_t resident_bytes = elements * (2 + 2 + 4 + 4);
  ASSERT_EQ(TrainTiny(job, "resident").code, ExitCode::kOk);
  const int64_t budget = resident_bytes / 3;
  NullReporter reporter;
  const ExitReport report = TrainTiny(
      job, "budget",
      With({"memory.blocks_to_swap=auto", absl::StrCat("memory.vram_budget=", budget)}), &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  ExpectSameRun(job, "budget", "resident");
  for (const StepReport& step : reporter.steps) EXPECT_LE(step.device_bytes_peak, budget);
}

TEST(BaseTrainingTest, LossFallsAndWeightsNeverComeDown) {
  const TinyJob job(BaseJob(60));
  NullReporter reporter;
  ASSERT_EQ(TrainTiny(job, "run", With({"memory.blocks_to_swap=4", "training.learning_rate=3e-3"}),
                      &reporter)
                .code,
            ExitCode::kOk);
  double first = 0, last = 0;
  for (size_t i = 0; i < 5; ++i) {
    first += reporter.steps[i].loss;
    last += reporter.steps[reporter.steps.size() - 1 - i].loss;
  }
  EXPECT_LT(last, 0.9 * first);
  EXPECT_EQ(reporter.steps.back().swap.d2h_bytes, 0);
  // What does come down is gradients: each block's once a step, and the edges'.
  int64_t gradients = 0;
  const std::vector<BaseUnit> units = BaseUnitsOf(job.Open({})->model);
  for (size_t unit = 0; unit < units.size(); ++unit) {
    gradients += units[unit].elements * (unit == 0 ? 4 : 2);
  }
  EXPECT_EQ(reporter.steps[40].swap.d2h_link_bytes - reporter.steps[39].swap.d2h_link_bytes,
            gradients);
}

TEST(BaseTrainingTest, BrokenAndResumedUnderOtherPlansTheResultIsTheSame) {
  const TinyJob job(BaseJob(12));
  const std::vector<std::string> common = {"output.save_every_steps=3",
                                           "training.scheduler.type=cosine"};
  ASSERT_EQ(TrainTiny(job, "unbroken", With(common)).code, ExitCode::kOk);
  int64_t step = 4;
  for (const char* blocks : {"memory.blocks_to_swap=5", "memory.blocks_to_swap=0"}) {
    std::vector<std::string> overrides = common;
    overrides.push_back(blocks);
    NullReporter reporter;
    reporter.after_step = [&](const StepReport& report) {
      if (report.step == step) reporter.stop = StopRequest::kNow;
    };
    ASSERT_EQ(TrainTiny(job, "broken", With(overrides), &reporter).code, ExitCode::kCancelled);
    step += 4;
  }
  std::vector<std::string> overrides = common;
  overrides.push_back("memory.blocks_to_swap=3");
  const ExitReport last = TrainTiny(job, "broken", With(overrides));
  ASSERT_EQ(last.code, ExitCode::kOk) << last.message;
  ExpectSameRun(job, "broken", "unbroken");
}

TEST(BaseTrainingTest, AStepThatIsNotFiniteChangesNothing) {
  const TinyJob job(BaseJob(5));
  job.PoisonLatent(3, std::numeric_limits<float>::infinity());
  const ExitReport report =
      TrainTiny(job, "skip",
                With({"training.on_nonfinite=skip", "memory.blocks_to_swap=3",
                      "output.save_every_steps=1", "output.keep_checkpoints=5"}));
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  const RunResult run = ReadRun(job.output("skip"));
  int compared = 0;
  for (int64_t step = 2; step <= 5; ++step) {
    const bool left_out = run.losses[static_cast<size_t>(step - 1)] == "null";
    const bool same = StateOf(job, "skip", step) == StateOf(job, "skip", step - 1);
    EXPECT_EQ(same, left_out) << "step " << step;
    if (left_out) ++compared;
  }
  EXPECT_EQ(compared, 1);
}

TEST(BaseTrainingTest, WritesTheModelUnderTheNamesItWasReadFrom) {
  const TinyJob job(BaseJob(2));
  ASSERT_EQ(TrainTiny(job, "run", With({"output.save_precision=bf16"})).code, ExitCode::kOk);
  const auto opened = job.Open();
  ASSERT_TRUE(opened.ok());
  const auto file = SafetensorsFile::Open(job.output("run") + "/tiny-lora.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto& source = opened->weights->tensors();
  ASSERT_EQ((*file)->tensors().size(), source.size());
  for (const auto& [name, tensor] : source) {
    ASSERT_EQ((*file)->tensors().count(name), 1u) << name;
    EXPECT_EQ((*file)->tensors().at(name).shape, tensor.entry.shape) << name;
    EXPECT_EQ((*file)->tensors().at(name).type, StoredType::kBF16) << name;
  }
  EXPECT_EQ((*file)->metadata().at("modelspec.architecture"), "Qwen-Image");
  EXPECT_EQ((*file)->metadata().count("ss_network_dim"), 0u);
  EXPECT_TRUE(std::filesystem::exists(job.output("run") + "/tiny-lora.config.json"));
}

TEST(BaseTrainingTest, AnotherKindOfJobDoesNotContinueIt) {
  const TinyJob job(BaseJob(2));
  ASSERT_EQ(TrainTiny(job, "run").code, ExitCode::kOk);
  const TinyJob adapter_job;
  std::filesystem::copy(job.output("run"), adapter_job.output("run"),
                        std::filesystem::copy_options::recursive);
  const ExitReport report = TrainTiny(adapter_job, "run");
  EXPECT_EQ(report.code, ExitCode::kInvalidInput) << report.message;
  EXPECT_THAT(report.message, HasSubstr("none, the base trains"));
}

}  // namespace
}  // namespace blockswap::worker
