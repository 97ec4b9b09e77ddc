// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/worker/data/tiny_checkpoint.h"
#include "worker/family/family.h"
#include "worker/family/qwen_image_layout.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

class AdapterSelectionTest : public ::testing::Test {
 protected:
  AdapterSelectionTest() {
    for (int i = 0; i < 3; ++i) {
      model_.blocks.push_back(DescribeQwenImageBlock(TinyQwenImageConfig(3), i));
    }
  }

  absl::StatusOr<AdapterLayout> Select(std::vector<std::string> exclude,
                                       std::vector<std::string> include = {}) {
    NetworkConfig network;
    network.rank = 4;
    network.alpha = 2;
    network.exclude_patterns = std::move(exclude);
    network.include_patterns = std::move(include);
    return SelectAdapterModules(model_, **FindFamily("qwen_image"), network);
  }

  ModelDescription model_;
};

TEST_F(AdapterSelectionTest, TrainsAllFourteenLinearsOfEveryBlockByDefault) {
  const auto layout = Select({});
  ASSERT_TRUE(layout.ok());
  ASSERT_EQ(layout->modules.size(), 3u * 14);
  EXPECT_EQ(layout->modules[0].key, "lora_unet_transformer_blocks_0_attn_to_q");
  EXPECT_EQ(layout->modules[3].key, "lora_unet_transformer_blocks_0_attn_to_out_0");
  EXPECT_EQ(layout->modules[8].key, "lora_unet_transformer_blocks_0_img_mlp_net_0_proj");
  // musubi's default pattern never fits the modulation, which therefore trains.
  EXPECT_EQ(layout->modules[12].key, "lora_unet_transformer_blocks_0_img_mod_1");
  EXPECT_EQ(layout->modules[41].target.block, 2);
  EXPECT_EQ(layout->modules[41].target.slot, 13);
  EXPECT_EQ(layout->modules[41].rank, 4);
  EXPECT_EQ(layout->modules[41].alpha, 2);
  // 8 attention linears of 32 + 32, 4 MLP linears of 32 + 128, 2 modulations of 32 + 192, in 3
  // blocks of rank 4.
  EXPECT_EQ(layout->num_parameters(), 3 * 4 * (8 * 64 + 4 * 160 + 2 * 224));
}

// F101: patterns must fit the whole path, include only rescues.
TEST_F(AdapterSelectionTest, ExcludesWholePathsAndRescuesByInclude) {
  EXPECT_EQ(Select({"attn"})->modules.size(), 42u) << "no full match, nothing excluded";
  EXPECT_EQ(Select({".*_mod\\.1"})->modules.size(), 36u);
  const auto rescued = Select({".*"}, {"transformer_blocks\\.1\\.attn\\.to_[qk]"});
  ASSERT_TRUE(rescued.ok());
  ASSERT_EQ(rescued->modules.size(), 2u);
  EXPECT_EQ(rescued->modules[1].target.path, "transformer_blocks.1.attn.to_k");
  EXPECT_EQ(Select({}, {"nothing"})->modules.size(), 42u) << "include alone excludes nothing";
}

// F101: no module left is an error that lists candidates.
TEST_F(AdapterSelectionTest, RefusesToTrainNothing) {
  const auto none = Select({".*"});
  EXPECT_TRUE(absl::IsInvalidArgument(none.status()));
  const std::string error = none.status().ToString();
  EXPECT_THAT(error, HasSubstr("no module to train"));
  for (const char* candidate : {"to_q,", "to_k,", "to_v,", "to_out.0,", "attn.add_q_proj;"}) {
    EXPECT_THAT(error, HasSubstr(candidate));
  }
}

// F101: a pattern that is none is named.
TEST_F(AdapterSelectionTest, NamesAPatternThatIsNoRegularExpression) {
  for (const char* pattern : {"attn(", "[", "*", "a{2,1}", "\\", "(?<n>a)"}) {
    const auto result = Select({"fine", pattern});
    EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << pattern;
    EXPECT_THAT(result.status().ToString(), HasSubstr("is no valid regular expression")) << pattern;
    EXPECT_FALSE(Select({}, {pattern}).ok());
  }
  EXPECT_THAT(Select({std::string(513, 'a')}).status().ToString(), HasSubstr("at most 512"));
}

TEST_F(AdapterSelectionTest, EvaluatesHostilePatternsQuickly) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(Select({"(.*)*(.*)*(.*)*x", "((a|t)+)+!", "(((.*)+)+)+y"}).ok());
  EXPECT_FALSE(Select({std::string(400, '(')}).ok());
  EXPECT_FALSE(Select({"(((((.{99}){99}){99}){99}){99})"}).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace blockswap::worker
