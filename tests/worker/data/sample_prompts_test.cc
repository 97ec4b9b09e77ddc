// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/data/temp_directory.h"
#include "tests/worker/data/tiny_dataset.h"
#include "worker/data/dataset.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

class SamplePromptsTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<SamplePrompt>> Read(const std::string& text) {
    return ReadSamplePrompts(directory_.Write("prompts.txt", text), **FindFamily("qwen_image"),
                             TinyModelDescription());
  }
  void SetUp() override {
    WriteTextCacheFile(directory_.Path("prompts_00_qi_te.safetensors"));
    TinyText longer;
    longer.tokens = 9;
    WriteTextCacheFile(directory_.Path("prompts_01_qi_te.safetensors"), longer);
  }
  const TempDirectory directory_;
};

TEST_F(SamplePromptsTest, ReadsOptionsAndTheEmbeddingsBesideTheFile) {
  const auto prompts = Read(
      "# a comment\n\na cat -- on -a mat --w 64 --h 128 --s 30 --d 7 --fs 2.2 --f 1\r\n  another "
      "one\n");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  ASSERT_EQ(prompts->size(), 2u);
  const SamplePrompt& first = (*prompts)[0];
  EXPECT_EQ((*prompts)[1].text, "another one");
  EXPECT_EQ((*prompts)[1].width, 256);
  EXPECT_EQ((*prompts)[1].steps, 20);
  EXPECT_EQ((*prompts)[1].text_tokens, 9);
  EXPECT_EQ(first.width, 64);
  EXPECT_EQ(first.height, 128);
  EXPECT_EQ(first.steps, 30);
  EXPECT_EQ(first.seed, 7);
  EXPECT_EQ(first.flow_shift, 2.2);
  EXPECT_EQ(first.text_key, "varlen_vl_embed_float32");
}

TEST_F(SamplePromptsTest, RefusesWhatItCannotDoAndNamesIt) {
  struct Case {
    const char *options, *expected;
  };
  const Case cases[] = {
      {"--n ugly", "option --n (a negative prompt) is not available"},
      {"--g 3.5", "option --g (embedded guidance) is not available"},
      {"--l 4", "option --l (classifier-free guidance) is not available"},
      {"--ci a.png", "option --ci (a control image)"},
      {"--of x", "option --of (one-frame settings)"},
      {"--f 81", "option --f must be a whole number from 1 to 1, is \"81\""},
      {"--w 100", "option --w must be a multiple of 16, is 100"},
      {"--w 0", "from 16 to 8192, is \"0\""},
      {"--h 99999999999999999999", "option --h must be"},
      {"--s 0", "option --s must be a whole number from 1 to 1000"},
      {"--d -1", "option --d must be"},
      {"--d", "option --d must be"},
      {"--fs nan", "option --fs must be a number above 0"},
      {"--fs inf", "option --fs must be"},
      {"--fs -1", "option --fs must be"},
      {"--width 64", "unknown option --width, known are --w --h"},
  };
  for (const Case& one : cases) {
    const auto prompts = Read(absl::StrCat("fine\na prompt ", one.options, "\n"));
    EXPECT_TRUE(absl::IsInvalidArgument(prompts.status())) << one.options;
    EXPECT_THAT(prompts.status().ToString(), HasSubstr("prompts.txt line 2: ")) << one.options;
    EXPECT_THAT(prompts.status().ToString(), HasSubstr(one.expected)) << one.options;
  }
}

TEST_F(SamplePromptsTest, NeedsAnEmbeddingForEveryPrompt) {
  const auto prompts = Read("one\ntwo\nthree\n");
  EXPECT_THAT(prompts.status().ToString(), HasSubstr("prompts.txt line 3"));
  EXPECT_THAT(prompts.status().ToString(), HasSubstr("prompts_02_qi_te.safetensors"));
}

TEST_F(SamplePromptsTest, RefusesAFileWithoutPrompts) {
  EXPECT_THAT(Read("# nothing\n").status().ToString(), HasSubstr("has no prompt"));
}

}  // namespace
}  // namespace blockswap::worker
