// SPDX-License-Identifier: Apache-2.0
#include "offload/base/nearest_name.h"

#include <gtest/gtest.h>

namespace blockswap::base {
namespace {

TEST(NearestNameTest, FindsMisspeltNames) {
  const std::vector<std::string> names = {"resolution", "batch_size", "shift", "qwen_shift"};
  EXPECT_EQ(NearestName("resolutoin", names), "resolution");
  EXPECT_EQ(NearestName("batchsize", names), "batch_size");
  EXPECT_EQ(NearestName("shfit", names), "shift");
  EXPECT_EQ(NearestName("resolution", names), "resolution");
}

TEST(NearestNameTest, SuggestsNothingFarFetched) {
  const std::vector<std::string> names = {"resolution", "shift"};
  EXPECT_EQ(NearestName("zebra", names), "");
  EXPECT_EQ(NearestName("", names), "");
  EXPECT_EQ(NearestName("x", {}), "");
  EXPECT_EQ(NearestName(std::string(100'000, 'r'), names), "");
}

TEST(NearestNameTest, FindsSlipsOfTheFinger) {
  const std::vector<std::string> names = {"ring_size", "vram_budget", "host_budget", "mode"};
  EXPECT_EQ(NearestName("ring_sise", names), "ring_size");
  EXPECT_EQ(NearestName("vram_budegt", names), "vram_budget");
  EXPECT_EQ(NearestName("Ring-Size", names), "ring_size");
  EXPECT_EQ(NearestName("mod", names), "mode");
}

TEST(NearestNameTest, SuggestsNothingForAnotherWord) {
  EXPECT_EQ(NearestName("batch", {"ring_size", "mode"}), "");
  EXPECT_EQ(NearestName("", {"a"}), "");
  EXPECT_EQ(NearestName("x", {"a", "b"}), "");
  EXPECT_EQ(NearestName(std::string(100000, 'a'), {std::string(100000, 'a')}), "");
}

TEST(EditDistanceTest, CountsASwapOfNeighboursAsOneEdit) {
  EXPECT_EQ(EditDistance("rnig", "ring"), 1);
  EXPECT_EQ(EditDistance("", "ring"), 4);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

}  // namespace
}  // namespace blockswap::base
