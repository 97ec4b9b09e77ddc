// SPDX-License-Identifier: Apache-2.0
#include "proto/job_file/job_file.h"

#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace blockswap::proto {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Parsed {
  v1::JobSpec spec;
  std::vector<std::string> faults;  // "field: description"
};

Parsed Parse(const std::string& text) {
  Parsed parsed;
  std::vector<JobFileFault> faults;
  absl::StatusOr<v1::JobSpec> spec = ParseJobFile(text, &faults);
  if (!spec.ok()) {
    parsed.faults.push_back(absl::StrCat("FILE: ", std::string(spec.status().message())));
    return parsed;
  }
  parsed.spec = *spec;
  for (const JobFileFault& fault : faults) {
    parsed.faults.push_back(absl::StrCat(fault.field, ": ", fault.description));
  }
  return parsed;
}

TEST(JobFileTest, ReadsTheExampleJob) {
  const char* root = std::getenv("BLOCKSWAP_SOURCE_DIR");
  ASSERT_NE(root, nullptr);
  std::ifstream file(std::string(root) + "/deploy/examples/digits.yaml");
  ASSERT_TRUE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  const Parsed parsed = Parse(text.str());
  EXPECT_THAT(parsed.faults, IsEmpty());
  EXPECT_EQ(parsed.spec.name(), "digits");
  EXPECT_EQ(parsed.spec.model().architecture(), "qwen_image");
  EXPECT_GT(parsed.spec.network().rank(), 0);
  EXPECT_THAT(parsed.spec.network().exclude_patterns(), ElementsAre(".*_mod\\..*"));
  EXPECT_GT(parsed.spec.training().learning_rate(), 0);
  EXPECT_GT(parsed.spec.training().max_steps(), 0);
}

TEST(JobFileTest, LetsTheSchemaDecideWhatAScalarIs) {
  const Parsed parsed = Parse(
      "name: 42\n"
      "memory: {blocks_to_swap: 4, vram_budget: 12MiB, activation_offload: on, ring_size: \"2\"}\n"
      "training: {max_steps: 1e3, seed: 200.0, learning_rate: 1, gradient_checkpointing: false}\n"
      "network: {include_patterns: ['.*attn.*', 5]}\n"
      "labels: {team: a, year: 2024}\n"
      "priority: -5\n");
  EXPECT_THAT(parsed.faults, IsEmpty());
  EXPECT_EQ(parsed.spec.name(), "42");
  EXPECT_EQ(parsed.spec.memory().blocks_to_swap(), "4");
  EXPECT_EQ(parsed.spec.memory().vram_budget(), "12MiB");
  EXPECT_EQ(parsed.spec.memory().activation_offload(), "on");
  EXPECT_EQ(parsed.spec.memory().ring_size(), 2);
  EXPECT_EQ(parsed.spec.training().max_steps(), 1000);
  EXPECT_EQ(parsed.spec.training().seed(), 200);
  EXPECT_TRUE(parsed.spec.training().has_gradient_checkpointing());
  EXPECT_THAT(parsed.spec.network().include_patterns(), ElementsAre(".*attn.*", "5"));
  EXPECT_EQ(parsed.spec.labels().at("year"), "2024");
  EXPECT_EQ(parsed.spec.priority(), -5);
}

TEST(JobFileTest, NullLeavesAFieldAbsent) {
  const Parsed parsed =
      Parse("name: x\nmemory:\ntraining: {max_steps: ~, seed: null}\nlabels: null\n");
  EXPECT_THAT(parsed.faults, IsEmpty());
  EXPECT_FALSE(parsed.spec.training().has_max_steps());
  EXPECT_FALSE(parsed.spec.has_memory());
}

TEST(JobFileTest, ReportsEveryFaultWithItsLine) {
  const Parsed parsed = Parse(
      "name: [x]\n"
      "memory:\n"
      "  ring_sise: 2\n"
      "training: {max_steps: soon, learning_rate: .inf, gradient_checkpointing: yes}\n"
      "network: {rank: 3000000000}\n"
      "dataset: digits.toml\n"
      "name: y\n");
  EXPECT_THAT(
      parsed.faults,
      ElementsAre(
          "name: expected text, found a list (line 1)",
          "memory.ring_sise: unknown key, did you mean \"ring_size\"? (line 3)",
          "training.max_steps: expected a whole number, found \"soon\" (line 4)",
          "training.learning_rate: expected a finite number, found \".inf\" (line 4)",
          "training.gradient_checkpointing: expected true or false, found \"yes\" (line 4)",
          "network.rank: number out of range: \"3000000000\", the largest is 2147483647 (line 5)",
          "dataset: expected a table with config, on_missing, found \"digits.toml\" (line 6)",
          "name: key given twice (line 7)"));
}

TEST(JobFileTest, NamesTheLevelAKeyBelongsTo) {
  EXPECT_THAT(Parse("rank: 4\n").faults,
              ElementsAre(HasSubstr("\"rank\" belongs to network.rank")));
  EXPECT_THAT(Parse("training: {ring_size: 1}\n").faults,
              ElementsAre(HasSubstr("belongs to memory.ring_size")));
  EXPECT_THAT(Parse("memory: {priority: 1}\n").faults,
              ElementsAre(HasSubstr("belongs to priority")));
  EXPECT_THAT(Parse("memory: {name: 1}\n").faults,
              ElementsAre(HasSubstr("belongs to name or output.name")));
}

TEST(JobFileTest, RefusesNumbersThatAreNone) {
  for (const char* value :
       {"1x", "0x10", "1_000", "nan", "1.5", "1e400", "--1", "' '", "9223372036854775808"}) {
    EXPECT_THAT(Parse(absl::StrCat("training: {max_steps: ", value, "}")).faults,
                ElementsAre(HasSubstr("training.max_steps: ")))
        << value;
  }
  for (const char* value : {"nan", "-inf", "1e400", "abc", "[1]"}) {
    EXPECT_THAT(Parse(absl::StrCat("training: {learning_rate: ", value, "}")).faults,
                ElementsAre(HasSubstr("training.learning_rate: ")))
        << value;
  }
}

TEST(JobFileTest, RefusesFilesThatAreNoTable) {
  EXPECT_THAT(Parse("- a\n").faults, ElementsAre(HasSubstr("a job file is a table")));
  EXPECT_THAT(Parse("hello\n").faults, ElementsAre(HasSubstr("a job file is a table")));
  EXPECT_THAT(Parse("{").faults, ElementsAre(HasSubstr("FILE: line 1")));
}

TEST(JobFileTest, BoundsTheNumberOfFaults) {
  std::string text;
  for (int i = 0; i < 3000; ++i) absl::StrAppend(&text, "zzzzzzzz", i, ": 1\n");
  EXPECT_EQ(Parse(text).faults.size(), 200u);
}

TEST(ApplyOverrideTest, SetsValuesByTheirType) {
  v1::JobSpec spec;
  for (const char* assignment :
       {"name=a: b=c", "memory.ring_size= 1 ", "memory.blocks_to_swap=4",
        "training.learning_rate=2e-4", "network.include_patterns=[x, \"y.*\"]",
        "labels.team.x=blue", "labels={a: b}", "output={name: n}"}) {
    EXPECT_TRUE(ApplyOverride(assignment, &spec).ok()) << ApplyOverride(assignment, &spec);
  }
  EXPECT_EQ(spec.name(), "a: b=c");
  EXPECT_EQ(spec.memory().ring_size(), 1);
  EXPECT_EQ(spec.memory().blocks_to_swap(), "4");
  EXPECT_DOUBLE_EQ(spec.training().learning_rate(), 2e-4);
  EXPECT_THAT(spec.network().include_patterns(), ElementsAre("x", "y.*"));
  EXPECT_EQ(spec.labels().at("team.x"), "blue");
  EXPECT_EQ(spec.labels().at("a"), "b");
  EXPECT_EQ(spec.output().name(), "n");
}

TEST(ApplyOverrideTest, SaysWhatIsWrong) {
  v1::JobSpec spec;
  const auto message = [&spec](const std::string& assignment) {
    const absl::Status status = ApplyOverride(assignment, &spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << assignment;
    return std::string(status.message());
  };
  EXPECT_THAT(message("memory.ring_sise=1"), HasSubstr("did you mean \"ring_size\"?"));
  EXPECT_THAT(message("rank=1"), HasSubstr("network.rank"));
  EXPECT_THAT(message("memory.ring_size"), HasSubstr("path=value"));
  EXPECT_THAT(message("=1"), HasSubstr("path=value"));
  EXPECT_THAT(message("memory.ring_size=x"), HasSubstr("whole number"));
  EXPECT_THAT(message("memory.ring_size.x=1"), HasSubstr("nothing below it"));
  EXPECT_THAT(message("memory=3"), HasSubstr("expected a table"));
  EXPECT_THAT(message("network.include_patterns=x"), HasSubstr("expected a list"));
  EXPECT_THAT(message("network.include_patterns=[x"), HasSubstr("bracket is not closed"));
  EXPECT_THAT(message(".=1"), HasSubstr("unknown key"));
}

// Random damage to a valid file and random soup of YAML's own characters: any answer but a crash, a
// hang or an exception.
TEST(JobFileTest, SurvivesRandomInput) {
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const std::string valid =
      "name: digits\nmodel: {architecture: qwen_image, dtype: \"bf16\"}\n# c\nnetwork:\n  rank: "
      "16\n"
      "  include_patterns: ['a', \"b\\n\"]\nlabels: {a: b}\ntraining:\n  max_steps: 300\n  seed: "
      ">\n   42\n";
  const std::string soup = "{}[]:,-?&*!|>'\"%@`#~ \n\t\\abc019.e+<=\xc3\xa9";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    if (round % 2 == 0) {
      text = valid;
      const int edits = 1 + static_cast<int>(random() % 6);
      for (int i = 0; i < edits; ++i) {
        const size_t at = random() % text.size();
        switch (random() % 3) {
          case 0:
            text[at] = static_cast<char>(random() % 256);
            break;
          case 1:
            text.insert(at, 1, soup[random() % soup.size()]);
            break;
          default:
            text.erase(at, 1 + random() % 5);
            if (text.empty()) text.assign(1, 'x');
        }
      }
    } else {
      const size_t length = random() % 120;
      for (size_t i = 0; i < length; ++i) text += soup[random() % soup.size()];
    }
    std::vector<JobFileFault> faults;
    const absl::StatusOr<v1::JobSpec> spec = ParseJobFile(text, &faults);
    if (!spec.ok()) {
      ASSERT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
      ASSERT_FALSE(spec.status().message().empty());
    } else {
      std::string wire;
      ASSERT_TRUE(spec->SerializeToString(&wire));
      v1::JobSpec again;
      ASSERT_TRUE(again.ParseFromString(wire));
    }
  }
}

}  // namespace
}  // namespace blockswap::proto
