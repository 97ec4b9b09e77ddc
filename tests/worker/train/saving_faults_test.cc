// SPDX-License-Identifier: Apache-2.0
// What a job does when a save or a sample goes wrong between others that go well.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/testing/tiny_job.h"
#include "tests/worker/testing/train_run.h"
#include "worker/io/checkpoint_directory.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

using blockswap::testing::NullReporter;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadRun;
using testing::RunOptions;
using testing::TinyJob;
using testing::TinyJobOptions;
using testing::TrainTiny;

// F018: the folder of checkpoints cannot be written between two saves: the first cause with its
// path, training goes on, and the next save works.
TEST(SavingFaultsTest, OneFailedPeriodicSaveIsAWarningWithItsCause) {
  TinyJobOptions options;
  options.max_steps = 8;
  const TinyJob job(options);
  RunOptions run;
  run.overrides = {"output.save_every_steps=2"};
  ASSERT_EQ(TrainTiny(job, "unbroken", run).code, ExitCode::kOk);

  const std::string folder = job.output("broken") + "/checkpoints", aside = folder + ".aside";
  NullReporter reporter;
  reporter.after_step = [&](const StepReport& report) {
    if (report.step == 3) {
      fs::rename(folder, aside);
      std::ofstream(folder) << "a file in the way";
    } else if (report.step == 5) {
      fs::remove(folder);
      fs::rename(aside, folder);
    }
  };
  const ExitReport report = TrainTiny(job, "broken", run, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  EXPECT_THAT(
      reporter.warnings,
      Contains(AllOf(HasSubstr("SAVE_FAILED"), HasSubstr(folder), HasSubstr("Not a directory"),
                     HasSubstr("the last good checkpoint is of step 2"))));
  EXPECT_THAT(reporter.checkpoint_steps, ElementsAre(2, 6, 8));
  EXPECT_TRUE(VerifyCheckpoint(folder + "/step-00000008").ok());
  EXPECT_EQ(ReadRun(job.output("broken")).losses, ReadRun(job.output("unbroken")).losses);
  EXPECT_TRUE(ReadRun(job.output("broken")).adapter_tensors ==
              ReadRun(job.output("unbroken")).adapter_tensors);
}

// Overwrites the first value of a cache's tensor.
void PoisonPrompt(const std::string& path) {
  int64_t offset = 0;
  {
    const auto file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto& entry = (*file)->tensors().begin()->second;
    ASSERT_EQ(entry.type, StoredType::kF32);
    std::ifstream header(path, std::ios::binary);
    uint64_t length = 0;
    header.read(reinterpret_cast<char*>(&length), sizeof(length));
    offset = static_cast<int64_t>(length) + 8;  // the only tensor of the file
  }
  const float value = std::numeric_limits<float>::quiet_NaN();
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(offset);
  file.write(reinterpret_cast<const char*>(&value), sizeof(value));
}

// F087: a sampler that makes NaN writes no picture, says at which step, and training goes on.
TEST(SavingFaultsTest, SamplesThatAreNotNumbersAreNoPictures) {
  TinyJobOptions options;
  options.max_steps = 4;
  const TinyJob job(options);
  PoisonPrompt(job.root() + "/prompts_01_qi_te.safetensors");
  NullReporter reporter;
  RunOptions run;
  run.overrides = {absl::StrCat("sampling.prompts=", job.root(), "/prompts.txt"),
                   "sampling.every_steps=2"};
  const ExitReport report = TrainTiny(job, "nan", run, &reporter);
  ASSERT_EQ(report.code, ExitCode::kOk) << report.message;
  for (const char* step : {"step 0: ", "step 2: ", "step 4: "}) {
    EXPECT_THAT(reporter.warnings, Contains(AllOf(HasSubstr("SAMPLE_NOT_FINITE"), HasSubstr(step),
                                                  HasSubstr("the sample of prompt 2"))));
  }
  EXPECT_TRUE(reporter.samples.empty());
  for (const auto& entry : fs::recursive_directory_iterator(job.output("nan"))) {
    EXPECT_NE(entry.path().extension(), ".png") << entry.path();
  }
  EXPECT_TRUE(fs::exists(job.output("nan") + "/tiny-lora.safetensors"));
}

// F097, outputs: whatever a folder is called, it is written to.
TEST(SavingFaultsTest, OutputFoldersMayHaveAnyName) {
  TinyJobOptions options;
  options.max_steps = 2;
  const TinyJob job(options);
  const std::string names[] = {
      "a [v2]",      "two  spaces ",        "star*",          "100%s", "quote'and\"two",
      "line\nbreak", std::string(240, 'n'), "not\xff\xfeutf8"};
  for (const std::string& name : names) {
    const ExitReport report = TrainTiny(job, name);
    ASSERT_EQ(report.code, ExitCode::kOk) << name << ": " << report.message;
    EXPECT_TRUE(fs::exists(job.output(name) + "/tiny-lora.safetensors")) << name;
    EXPECT_EQ(TrainTiny(job, name).code, ExitCode::kOk) << "found again: " << name;
  }
}

}  // namespace
}  // namespace blockswap::worker
