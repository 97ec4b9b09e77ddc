// SPDX-License-Identifier: Apache-2.0
#include "worker/io/nearest_name.h"

#include <gtest/gtest.h>

namespace blockswap::worker {
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

}  // namespace
}  // namespace blockswap::worker
