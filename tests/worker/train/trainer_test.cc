// SPDX-License-Identifier: Apache-2.0
#include "worker/train/trainer.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"
#include "worker/io/checkpoint_directory.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

using blockswap::testing::NullReporter;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ReadRun;
using testing::RunOptions;
using testing::RunResult;
using testing::TinyJob;
using testing::TinyJobOptions;
using testing::TrainTiny;

TEST(TrainerTest, LeavesEveryOutputUnderItsName) {
  TinyJobOptions options;
  options.max_steps = 4;
  const TinyJob job(options);
  NullReporter reporter;
  RunOptions run;
  run.overrides = {"output.save_every_steps=2", "memory.blocks_to_swap=4",
                   absl::StrCat("sampling.prompts=", job.root(), "/prompts.txt")};
  const ExitReport report = TrainTiny(job, "all", run, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  const std::string output = job.output("all");
  EXPECT_EQ(report.adapter_file, output + "/tiny-lora.safetensors");
  for (const char* file :
       {"tiny-lora.safetensors", "tiny-lora-step00000002.safetensors",
        "tiny-lora-step00000004.safetensors", "checkpoints/step-00000002/manifest.json",
        "checkpoints/step-00000004/state.safetensors", "metrics.jsonl", "plan.json", "log.txt",
        "samples/step-00000000.png", "samples/step-00000004.png", "samples/sheet.png"}) {
    EXPECT_TRUE(fs::exists(output + "/" + file)) << file;
  }
  EXPECT_EQ(reporter.phases.front(), "loading");
  EXPECT_THAT(reporter.phases, Contains("training"));
  EXPECT_EQ(reporter.exits.size(), 1u);
}

TEST(TrainerTest, StepsCarryTheSwapFiguresOfThePlan) {
  TinyJobOptions options;
  options.max_steps = 4;
  const TinyJob job(options);
  NullReporter reporter;
  RunOptions run;
  run.overrides = {"memory.blocks_to_swap=5", "memory.ring_size=2"};
  ASSERT_EQ(TrainTiny(job, "figures", run, &reporter).code, ExitCode::kOk);
  std::ifstream plan_file(job.output("figures") + "/plan.json");
  const nlohmann::json plan = nlohmann::json::parse(plan_file);
  std::ifstream metrics(job.output("figures") + "/metrics.jsonl");
  std::string line;
  while (std::getline(metrics, line)) {
    const nlohmann::json step = nlohmann::json::parse(line);
    EXPECT_EQ(step["h2d_bytes"], plan["prediction"]["h2d_bytes_per_step"]) << line;
    EXPECT_EQ(step["misses"], 0) << line;
    EXPECT_GT(step["device_bytes_peak"].get<int64_t>(), 0);
  }
  ASSERT_FALSE(reporter.memories.empty());
  EXPECT_GT(reporter.memories.front().planned_bytes.at("ring"), 0);
}

TEST(TrainerTest, TheAdapterFileHasMusubiKeysAndMetadata) {
  TinyJobOptions options;
  options.max_steps = 2;
  const TinyJob job(options);
  ASSERT_EQ(TrainTiny(job, "adapter").code, ExitCode::kOk);
  const auto file = SafetensorsFile::Open(job.output("adapter") + "/tiny-lora.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tensors().count("lora_unet_transformer_blocks_0_attn_to_q.lora_down.weight"),
            1u);
  EXPECT_EQ((*file)->tensors().size(), 6u * 14u * 3u);
  const auto& metadata = (*file)->metadata();
  EXPECT_EQ(metadata.at("ss_network_dim"), "4");
  EXPECT_EQ(metadata.at("ss_steps"), "2");
  EXPECT_EQ(metadata.at("modelspec.architecture"), "Qwen-Image/lora");
  EXPECT_EQ(metadata.at("sshs_model_hash").size(), 64u);
  EXPECT_EQ(metadata.at("sshs_legacy_hash").size(), 8u);
}

// F063: every allowed number of blocks trains with equal losses, every other one is refused with
// the range.
TEST(TrainerTest, BlocksToSwapOutOfRangeIsRefusedWithTheRange) {
  TinyJobOptions options;
  options.max_steps = 2;
  const TinyJob job(options);
  for (const char* mode : {"h2d_only", "exchange"}) {
    std::vector<std::vector<std::string>> losses;
    for (const int64_t blocks : {0, 1, 4, 5}) {
      RunOptions run;
      run.overrides = {absl::StrCat("memory.blocks_to_swap=", blocks),
                       absl::StrCat("memory.mode=", mode)};
      const std::string name = absl::StrCat("range-", mode, "-", blocks);
      const ExitReport report = TrainTiny(job, name, run);
      ASSERT_EQ(report.code, ExitCode::kOk) << name << ": " << report.message;
      losses.push_back(ReadRun(job.output(name)).losses);
    }
    EXPECT_THAT(losses, Each(losses.front()));
    for (const char* blocks : {"6", "7", "-1", "1000000000"}) {
      const auto opened = job.Open(
          {absl::StrCat("memory.blocks_to_swap=", blocks), absl::StrCat("memory.mode=", mode)});
      EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument) << blocks;
      EXPECT_THAT(std::string(opened.status().message()), HasSubstr("memory.blocks_to_swap"))
          << blocks;
    }
  }
}

// F003: a ring without checkpointing is refused before anything is loaded.
TEST(TrainerTest, StreamingWithoutCheckpointingIsRefusedNamingBothOptions) {
  const TinyJob job;
  const auto opened =
      job.Open({"memory.blocks_to_swap=3", "training.gradient_checkpointing=false"});
  ASSERT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("gradient_checkpointing"));
  EXPECT_THAT(std::string(opened.status().message()), HasSubstr("blocks_to_swap"));
}

TEST(TrainerTest, ABudgetThatNeverFitsIsRefusedWithNumbers) {
  const TinyJob job;
  RunOptions run;
  run.overrides = {"memory.blocks_to_swap=auto", "memory.vram_budget=64KiB"};
  const ExitReport report = TrainTiny(job, "small", run);
  EXPECT_EQ(report.code, ExitCode::kInvalidInput);
  EXPECT_EQ(report.reason, "WILL_NOT_FIT");
  EXPECT_THAT(report.message, HasSubstr("64.0 KiB"));
}

// The budget is a hard limit: what something else takes of it is missed. As long as a smaller plan
// fits beside it, the job goes on.
TEST(TrainerTest, WhatSomethingElseTakesOfTheBudgetIsMadeRoomFor) {
  TinyJobOptions options;
  options.max_steps = 6;
  const TinyJob job(options);
  ASSERT_EQ(TrainTiny(job, "unbroken").code, ExitCode::kOk);
  NullReporter reporter;
  at::Tensor intruder;
  reporter.after_step = [&](const StepReport& report) {
    // Leaves less than what the step's activations took, so the next step misses it.
    const int64_t bytes = (int64_t{8} << 20) - report.device_bytes_peak + (32 << 10);
    if (report.step == 3) intruder = at::empty({bytes}, at::kByte);
  };
  RunOptions run;
  run.overrides = {"memory.vram_budget=8MiB"};
  const ExitReport report = TrainTiny(job, "beside", run, &reporter);
  intruder = at::Tensor();
  EXPECT_EQ(report.code, ExitCode::kOk) << report.message;
  EXPECT_FALSE(reporter.replans.empty());
  EXPECT_TRUE(ReadRun(job.output("beside")).adapter_tensors ==
              ReadRun(job.output("unbroken")).adapter_tensors);
}

// No plan fits beside what is left: the answer is a memory failure, not a crash.
TEST(TrainerTest, RunningOutOfDeviceMemoryIsAnAnswerAndKeepsTheState) {
  TinyJobOptions options;
  options.max_steps = 6;
  const TinyJob job(options);
  ASSERT_EQ(TrainTiny(job, "unbroken").code, ExitCode::kOk);
  NullReporter reporter;
  RunOptions run;
  run.overrides = {"memory.vram_budget=8MiB"};
  run.host.before_charge = [&](offload::MemoryLedger& ledger) {
    if (reporter.steps.size() == 3) ledger.SetBudget(32 << 10);
  };
  const ExitReport report = TrainTiny(job, "oom", run, &reporter);
  EXPECT_EQ(report.code, ExitCode::kDeviceOutOfMemory) << report.message;
  EXPECT_EQ(report.category, "OUT_OF_MEMORY_DEVICE");
  EXPECT_THAT(report.message, HasSubstr("step 4"));
  EXPECT_THAT(report.message, HasSubstr("memory.vram_budget"));
  EXPECT_THAT(reporter.checkpoint_steps, ElementsAre(3));
  ASSERT_EQ(TrainTiny(job, "oom").code, ExitCode::kOk);
  EXPECT_TRUE(ReadRun(job.output("oom")).adapter_tensors ==
              ReadRun(job.output("unbroken")).adapter_tensors);
}

// Lets no file of this process grow beyond `bytes` while it lives: a full disk without a disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

// F015: the disk is full while saving: older checkpoint untouched, training goes on, and ends as a
// storage failure that a later attempt finishes.
TEST(TrainerTest, AFullDiskCostsNoCheckpointAndNoJob) {
  TinyJobOptions options;
  options.max_steps = 10;
  const TinyJob job(options);
  RunOptions run;
  run.overrides = {"output.save_every_steps=2"};
  ASSERT_EQ(TrainTiny(job, "unbroken", run).code, ExitCode::kOk);
  NullReporter reporter;
  std::unique_ptr<FileSizeLimit> limit;
  reporter.after_step = [&](const StepReport& report) {
    if (report.step == 3) limit = std::make_unique<FileSizeLimit>(16 << 10);
  };
  const ExitReport report = TrainTiny(job, "full", run, &reporter);
  limit.reset();
  EXPECT_EQ(report.code, ExitCode::kStorage) << report.message;
  EXPECT_EQ(report.category, "STORAGE");
  EXPECT_THAT(report.message, HasSubstr("last good checkpoint is of step 2"));
  EXPECT_FALSE(reporter.warnings.empty());
  EXPECT_GT(report.step, 4) << "the first failed save ended the job";
  EXPECT_TRUE(VerifyCheckpoint(job.output("full") + "/checkpoints/step-00000002").ok());
  for (const auto& entry : fs::directory_iterator(job.output("full") + "/checkpoints")) {
    EXPECT_EQ(entry.path().filename().string(), "step-00000002");
  }
  EXPECT_FALSE(fs::exists(job.output("full") + "/tiny-lora.safetensors"));

  ASSERT_EQ(TrainTiny(job, "full", run).code, ExitCode::kOk);
  const RunResult resumed = ReadRun(job.output("full")), expected = ReadRun(job.output("unbroken"));
  EXPECT_EQ(resumed.losses, expected.losses);
  EXPECT_TRUE(resumed.adapter_tensors == expected.adapter_tensors);
}

TEST(TrainerTest, CheckpointsAndSamplesAreMadeOnRequest) {
  TinyJobOptions options;
  options.max_steps = 3;
  const TinyJob job(options);
  NullReporter reporter;
  reporter.after_step = [&](const StepReport& report) {
    if (report.step != 2) return;
    reporter.checkpoint_request = true;
    reporter.sample_request = true;
  };
  RunOptions run;
  run.overrides = {absl::StrCat("sampling.prompts=", job.root(), "/prompts.txt")};
  ASSERT_EQ(TrainTiny(job, "request", run, &reporter).code, ExitCode::kOk);
  EXPECT_THAT(reporter.checkpoint_steps, ElementsAre(2, 3));
  EXPECT_THAT(reporter.samples, Contains(HasSubstr("step-00000002.png")));
}

TEST(TrainerTest, PeaksByPurposeOutliveSamplingAndNewPlans) {
  TinyJobOptions options;
  options.max_steps = 2;
  const TinyJob job(options);
  NullReporter reporter;
  RunOptions run;
  run.overrides = {absl::StrCat("sampling.prompts=", job.root(), "/prompts.txt"),
                   "sampling.every_steps=1"};
  ASSERT_EQ(TrainTiny(job, "run", run, &reporter).code, ExitCode::kOk);
  ASSERT_FALSE(reporter.memories.empty());
  const offload::MemorySnapshot& last = reporter.memories.back().measured;
  const auto activations = static_cast<size_t>(offload::MemoryTag::kActivations);
  EXPECT_GT(last.peak_bytes[activations], 0);
  EXPECT_GE(last.total_peak_bytes, last.peak_bytes[activations]);
}

TEST(TrainerTest, LatentsWithoutADecoderAreKeptAndSaidSo) {
  TinyJobOptions options;
  options.latent_channels = 4;
  options.max_steps = 1;
  const TinyJob job(options);
  NullReporter reporter;
  RunOptions run;
  run.overrides = {absl::StrCat("sampling.prompts=", job.root(), "/prompts.txt")};
  ASSERT_EQ(TrainTiny(job, "latents", run, &reporter).code, ExitCode::kOk);
  EXPECT_THAT(reporter.warnings, Contains(HasSubstr("NO_DECODER")));
  EXPECT_TRUE(fs::exists(job.output("latents") + "/samples/step-00000001.safetensors"));
  EXPECT_FALSE(fs::exists(job.output("latents") + "/samples/sheet.png"));
}

}  // namespace
}  // namespace blockswap::worker
