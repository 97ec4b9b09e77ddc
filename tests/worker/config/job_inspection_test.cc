// SPDX-License-Identifier: Apache-2.0
#include "worker/config/job_inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/worker/data/temp_directory.h"
#include "tests/worker/data/tiny_checkpoint.h"
#include "tests/worker/data/tiny_dataset.h"

namespace blockswap::worker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// A job of 6 blocks on 10 items in batches of 4.
class JobInspectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteTinyCheckpoint(directory_.Path("base"), TinyQwenImageConfig(6)).ok());
    for (int i = 0; i < 10; ++i) {
      WriteLatentCache(directory_.Path("cache"), absl::StrCat("i", i));
      WriteTextCache(directory_.Path("cache"), absl::StrCat("i", i));
    }
    config_.model.weights_path = directory_.Path("base");
    config_.dataset_config_path = directory_.Write(
        "d.toml",
        "[general]\nresolution=64\nbatch_size=4\n[[datasets]]\ncache_directory='cache'\n");
    config_.training.max_steps = 100;
  }
  absl::StatusOr<JobInspection> Inspect() {
    violations_.clear();
    return InspectJob(config_, &violations_);
  }
  void ExpectViolation(const std::string& field, const std::string& text) {
    EXPECT_TRUE(absl::IsInvalidArgument(Inspect().status()));
    ASSERT_FALSE(violations_.empty());
    EXPECT_EQ(violations_[0].field, field);
    EXPECT_THAT(violations_[0].description, HasSubstr(text));
  }

  const TempDirectory directory_;
  TrainConfig config_;
  std::vector<FieldViolation> violations_;
};

// A base that trains needs weights, not codes, however they came about.
TEST_F(JobInspectionTest, RefusesToTrainABaseOfCodes) {
  config_.network.trains_base = true;
  config_.model.quantization = Quantization::kFp8Scaled;
  ExpectViolation("model.weights", "must be plain weights with network.type none");
  EXPECT_THAT(violations_[0].description, HasSubstr("fp8_scaled: 84 of 84 linears"));
}

TEST_F(JobInspectionTest, QuantisedBlocksArePlannedWithTheirOwnSize) {
  const auto plain = Inspect();
  config_.model.quantization = Quantization::kFp8Scaled;
  const auto quantised = Inspect();
  ASSERT_TRUE(plain.ok() && quantised.ok()) << quantised.status();
  EXPECT_LT(quantised->profile.blocks[0].bytes, plain->profile.blocks[0].bytes);
  EXPECT_EQ(quantised->profile.edge_bytes, plain->profile.edge_bytes);
}

TEST_F(JobInspectionTest, ModulationOnTheHostLeavesTheBlocks) {
  const auto automatic = Inspect();
  config_.memory.host_modulation = offload::Toggle::kOn;
  auto on = Inspect();
  ASSERT_TRUE(automatic.ok() && on.ok()) << on.status();
  EXPECT_FALSE(automatic->model.host_modulation) << "settled when the device is known";
  EXPECT_TRUE(on->model.host_modulation);
  EXPECT_LT(on->profile.blocks[0].bytes, automatic->profile.blocks[0].bytes * 7 / 10);
  EXPECT_GT(on->profile.host_evaluated_bytes, 0);
  ASSERT_TRUE(UseHostModulation(false, &*on));
  EXPECT_EQ(on->profile.blocks[0].bytes, automatic->profile.blocks[0].bytes);
  EXPECT_EQ(on->profile.boundary_bytes, automatic->profile.boundary_bytes);
}

TEST_F(JobInspectionTest, ModulationThatTrainsStaysOnTheDevice) {
  config_.network.trains_base = true;
  config_.memory.host_modulation = offload::Toggle::kOn;
  ExpectViolation("memory.host_modulation", "must be auto or off with network.type none");
}

TEST_F(JobInspectionTest, DerivesEverythingAPlanNeeds) {
  const auto job = Inspect();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->config.model.architecture, "qwen_image");
  EXPECT_EQ(job->model.blocks.size(), 6u);
  EXPECT_EQ(job->adapter.modules.size(), 6u * 14);
  EXPECT_EQ(job->profile.blocks.size(), 6u);
  EXPECT_EQ(job->total_steps, 100);
  EXPECT_EQ(job->dataset->batches_per_epoch(), 3);
}

TEST_F(JobInspectionTest, CountsStepsFromEpochsAndAccumulation) {
  config_.training.max_steps.reset();
  config_.training.max_epochs = 5;
  EXPECT_EQ(Inspect()->total_steps, 15);
  config_.training.gradient_accumulation_steps = 2;
  EXPECT_EQ(Inspect()->total_steps, 10) << "three batches are two steps";
  config_.training.max_steps = 7;
  EXPECT_EQ(Inspect()->total_steps, 7) << "whichever ends first";
}

// F063: the range is named; every value inside it is taken.
TEST_F(JobInspectionTest, NamesTheRangeOfBlocksToSwap) {
  for (const int blocks : {-1, 6, 7, 1'000'000'000}) {
    config_.memory.blocks_to_swap = blocks;
    ExpectViolation("memory.blocks_to_swap", absl::StrCat("must be auto or from 0 to 5, is ",
                                                          blocks, ": the model has 6 blocks"));
  }
  for (const int blocks : {0, 1, 4, 5}) {
    config_.memory.blocks_to_swap = blocks;
    EXPECT_TRUE(Inspect().ok()) << blocks;
  }
}

TEST_F(JobInspectionTest, ReportsIndependentFaultsTogether) {
  config_.memory.blocks_to_swap = 99;
  config_.network.exclude_patterns = {".*"};
  std::filesystem::remove_all(directory_.Path("cache"));
  config_.sampling.prompts_path = directory_.Write("p.txt", "one\n");
  EXPECT_FALSE(Inspect().ok());
  std::vector<std::string> fields;
  for (const FieldViolation& violation : violations_) fields.push_back(violation.field);
  EXPECT_EQ(fields,
            (std::vector<std::string>{"dataset.config.datasets[0].cache_directory", "network",
                                      "memory.blocks_to_swap", "sampling.prompts"}));
}

TEST_F(JobInspectionTest, BlamesTheFieldThatIsWrong) {
  config_.network.exclude_patterns = {"("};
  ExpectViolation("network", "pattern \"(\" is no valid regular expression");
  config_.network.exclude_patterns.clear();
  config_.model.weights_path = directory_.Path("none.safetensors");
  ExpectViolation("model.weights", "none.safetensors");
  config_.model.weights_path =
      directory_.Write("pickle.pt", absl::string_view("PK\x03\x04xxxxxxxx", 12));
  ExpectViolation("model.weights", "only safetensors files are read");
}

// F042: a damaged base or adapter is DataLoss with the reader's own words, not a violation of the
// spec.
TEST_F(JobInspectionTest, PassesDamageOnAsDataLoss) {
  const std::string weights = directory_.Path("base/model.safetensors");
  const auto size = std::filesystem::file_size(weights);
  config_.network.weights_path = directory_.Path("adapter.safetensors");
  std::filesystem::copy_file(weights, config_.network.weights_path);
  for (const int64_t change : {1, -1}) {
    std::filesystem::resize_file(weights, size);
    std::filesystem::resize_file(config_.network.weights_path,
                                 static_cast<uint64_t>(static_cast<int64_t>(size) + change));
    const auto bad_adapter = Inspect();
    EXPECT_TRUE(absl::IsDataLoss(bad_adapter.status())) << bad_adapter.status();
    std::filesystem::resize_file(weights,
                                 static_cast<uint64_t>(static_cast<int64_t>(size) + change));
    const auto bad_base = Inspect();
    EXPECT_TRUE(absl::IsDataLoss(bad_base.status())) << bad_base.status();
    EXPECT_THAT(bad_base.status().ToString(),
                HasSubstr(change > 0 ? "belong to no tensor" : "cut short"));
    EXPECT_THAT(bad_adapter.status().ToString(),
                HasSubstr(change > 0 ? "belong to no tensor" : "cut short"));
  }
}

// F037: the prefix that was stripped is told.
TEST_F(JobInspectionTest, TellsWhichPrefixWasStripped) {
  auto tensors = TinyQwenImageTensors(TinyQwenImageConfig(6));
  for (TinyTensor& tensor : tensors) tensor.name = "model.diffusion_model." + tensor.name;
  config_.model.weights_path = directory_.Path("prefixed.safetensors");
  config_.model.config_path = directory_.Path("base/config.json");
  ASSERT_TRUE(WriteTinyTensors(config_.model.weights_path, tensors).ok());
  const auto job = Inspect();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->warnings, Contains(HasSubstr("the prefix \"model.diffusion_model.\"")));
}

TEST_F(JobInspectionTest, RefusesAModelThatPredictsOtherChannels) {
  QwenImageConfig config = TinyQwenImageConfig(6);
  config.out_channels = 3;
  ASSERT_TRUE(WriteTinyCheckpoint(directory_.Path("base"), config).ok());
  ExpectViolation("model.weights", "takes latents of 2 channels and predicts 3");
}

TEST_F(JobInspectionTest, HandsEverySettingToThePlanner) {
  config_.memory.vram_budget_bytes = 1000;
  config_.memory.host_budget_bytes = 2000;
  config_.memory.blocks_to_swap = 3;
  config_.memory.ring_size = 4;
  config_.memory.mode = offload::TransferMode::kExchange;
  config_.memory.pinned_memory = offload::PinPolicy::kNever;
  config_.training.gradient_accumulation_steps = 5;
  const auto job = Inspect();
  ASSERT_TRUE(job.ok()) << job.status();
  Machine machine;
  machine.device_free_bytes = 10;
  machine.host_available_bytes = 20;
  machine.lockable_bytes = 30;
  machine.copies_need_pinned_memory = true;
  machine.compute_flops_per_second = 40;
  const offload::PlanRequest request = MakePlanRequest(*job, machine);
  EXPECT_EQ(request.model.blocks.size(), 6u);
  EXPECT_EQ(request.device_free_bytes, 10);
  EXPECT_EQ(request.host_available_bytes, 20);
  EXPECT_EQ(request.lockable_bytes, 30);
  EXPECT_TRUE(request.copies_need_pinned_memory);
  EXPECT_EQ(request.compute_flops_per_second, 40);
  EXPECT_EQ(request.micro_batches, 5);
  EXPECT_EQ(request.constraints.vram_budget_bytes, 1000);
  EXPECT_EQ(request.constraints.host_budget_bytes, 2000);
  EXPECT_EQ(request.constraints.blocks_to_swap, 3);
  EXPECT_EQ(request.constraints.ring_size, 4);
  EXPECT_EQ(request.constraints.mode, offload::TransferMode::kExchange);
  EXPECT_EQ(request.constraints.pin_policy, offload::PinPolicy::kNever);
}

}  // namespace
}  // namespace blockswap::worker
