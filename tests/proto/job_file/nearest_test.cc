// SPDX-License-Identifier: Apache-2.0
#include "proto/job_file/nearest.h"

#include "gtest/gtest.h"
#include "proto/job_file/job_file.h"

namespace blockswap::proto {
namespace {

TEST(NearestTest, FindsSlipsOfTheFinger) {
  const std::vector<std::string> names = {"ring_size", "vram_budget", "host_budget", "mode"};
  EXPECT_EQ(Nearest("ring_sise", names), "ring_size");
  EXPECT_EQ(Nearest("vram_budegt", names), "vram_budget");
  EXPECT_EQ(Nearest("Ring-Size", names), "ring_size");
  EXPECT_EQ(Nearest("mod", names), "mode");
}

TEST(NearestTest, SuggestsNothingForAnotherWord) {
  EXPECT_EQ(Nearest("batch", {"ring_size", "mode"}), "");
  EXPECT_EQ(Nearest("", {"a"}), "");
  EXPECT_EQ(Nearest("x", {"a", "b"}), "");
  EXPECT_EQ(Nearest(std::string(100000, 'a'), {std::string(100000, 'a')}), "");
}

TEST(NearestTest, CountsASwapOfNeighboursAsOneEdit) {
  EXPECT_EQ(EditDistance("rnig", "ring"), 1);
  EXPECT_EQ(EditDistance("", "ring"), 4);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

}  // namespace
}  // namespace blockswap::proto
