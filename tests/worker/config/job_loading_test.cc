// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "tests/worker/data/temp_directory.h"
#include "worker/config/train_config.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

class JobLoadingTest : public ::testing::Test {
 protected:
  JobLoadingTest() {
    directory_.Write("models/base.safetensors", "x");
    directory_.Write("datasets/d.toml", "x");
    roots_ = {directory_.Path("models"), directory_.Path("datasets"), ""};
  }
  absl::StatusOr<SpecResult> Load(const std::string& text,
                                  const std::vector<std::string>& overrides = {}) {
    return LoadJobFile(directory_.Write("job.yaml", text), overrides, roots_);
  }
  const TempDirectory directory_;
  Roots roots_;
};

constexpr char kJob[] =
    "name: digits\n"
    "model: {weights: base.safetensors}\n"
    "dataset: {config: d.toml}\n"
    "training: {max_steps: 200, learning_rate: 1e-3}\n"
    "memory: {vram_budget: 12MiB, blocks_to_swap: 4}\n";

TEST_F(JobLoadingTest, ReadsAJobFileAndItsOverrides) {
  const auto result = Load(kJob, {"memory.blocks_to_swap=2", "training.seed=7"});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->config.has_value()) << ViolationsToStatus(result->violations);
  EXPECT_EQ(result->config->training.max_steps, 200);
  EXPECT_EQ(result->config->training.learning_rate, 1e-3);
  EXPECT_EQ(result->config->memory.vram_budget_bytes, int64_t{12} << 20);
  EXPECT_EQ(result->config->memory.blocks_to_swap, 2);
  EXPECT_EQ(result->config->training.seed, 7);
}

TEST_F(JobLoadingTest, ReportsFaultsOfTheFileWithThoseOfTheSpec) {
  const auto result = Load(absl::StrCat(kJob, "network: {rnak: 4, alpha: -1}\n"));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->config.has_value());
  ASSERT_EQ(result->violations.size(), 2u) << ViolationsToStatus(result->violations);
  EXPECT_EQ(result->violations[0].field, "network.rnak");
  EXPECT_THAT(result->violations[0].description, HasSubstr("rank"));
  EXPECT_EQ(result->violations[1].field, "network.alpha");
}

TEST_F(JobLoadingTest, RefusesWhatIsNoJobFile) {
  EXPECT_TRUE(absl::IsInvalidArgument(Load("name: [").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Load(std::string(300'000, 'x')).status()));
  EXPECT_TRUE(absl::IsNotFound(LoadJobFile(directory_.Path("none.yaml"), {}, roots_).status()));
  EXPECT_FALSE(Load(kJob, {"memory.ring_sise=2"}).ok());
}

TEST_F(JobLoadingTest, JsonOfASpecGivesTheSameJob) {
  const auto from_file = Load(kJob);
  ASSERT_TRUE(from_file.ok() && from_file->config.has_value());
  const auto from_json = LoadJobJson(from_file->config->spec_json, roots_);
  ASSERT_TRUE(from_json.ok()) << from_json.status();
  ASSERT_TRUE(from_json->config.has_value());
  EXPECT_EQ(from_json->config->spec_json, from_file->config->spec_json);
  EXPECT_EQ(from_json->config->training.max_steps, 200);
  for (const char* bad :
       {"", "[]", "{\"nmae\": \"x\"}", "{\"name\": 3", "{\"network\": {\"rank\": \"many\"}}"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(LoadJobJson(bad, roots_).status())) << bad;
  }
}

TEST_F(JobLoadingTest, NumbersThatJsonSpellsAsWordsAreViolations) {
  const auto result = LoadJobJson(
      R"({"name":"x","model":{"weights":"base.safetensors"},"dataset":{"config":"d.toml"},)"
      R"("training":{"max_steps":"5","learning_rate":"NaN"}})",
      roots_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->violations.size(), 1u);
  EXPECT_EQ(result->violations[0].field, "training.learning_rate");
}

// A job file that someone damaged is a job, a list of violations or no job file, and nothing else.
TEST_F(JobLoadingTest, SurvivesRandomDamage) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::string text = kJob;
    for (auto edits = random() % 6 + 1; edits > 0; --edits) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random());
      } else {
        text.insert(at, text.substr(random() % text.size(), random() % 12));
      }
    }
    const auto result = Load(text);
    if (!result.ok()) continue;
    EXPECT_NE(result->config.has_value(),
              !result->violations.empty() || !result->outside_roots.empty())
        << text;
  }
}

}  // namespace
}  // namespace blockswap::worker
