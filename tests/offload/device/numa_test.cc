// SPDX-License-Identifier: Apache-2.0
#include "offload/device/numa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "offload/device/host_memory.h"

namespace blockswap::offload {
namespace {

class NumaTest : public ::testing::Test {
 protected:
  NumaTest()
      : sysfs_(::testing::TempDir() + "numa_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name()) {}
  ~NumaTest() override { std::filesystem::remove_all(sysfs_); }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = sysfs_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  const std::string sysfs_;
};

TEST_F(NumaTest, CountsRangesAndSingleNodes) {
  EXPECT_EQ(CountMemoryNodes(sysfs_), 1);  // a system that does not say
  Write("devices/system/node/online", "0\n");
  EXPECT_EQ(CountMemoryNodes(sysfs_), 1);
  Write("devices/system/node/online", "0-1,4\n");
  EXPECT_EQ(CountMemoryNodes(sysfs_), 3);
}

TEST_F(NumaTest, TheNodeOfADeviceIsReadInEitherCase) {
  Write("bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  Write("bus/pci/devices/0000:41:00.0/numa_node", "-1\n");
  EXPECT_EQ(NodeOfPciDevice("0000:3B:00.0", sysfs_), 1);
  EXPECT_EQ(NodeOfPciDevice("0000:41:00.0", sysfs_), kNoNode);
  EXPECT_EQ(NodeOfPciDevice("0000:99:00.0", sysfs_), kNoNode);
}

TEST(PreferNodeTest, PlacesPagesOnTheThreadsOwnNode) {
  const int node = NodeOfThisThread();
  ASSERT_GE(node, 0);
  std::byte* data = *MapPages(4 * PageSize());
  const absl::Status placed = PreferNode(data, 4 * PageSize(), node);
  // A kernel without memory policies says so; that is no failure of the job.
  EXPECT_TRUE(placed.ok() || placed.code() == absl::StatusCode::kUnavailable) << placed;
  data[0] = std::byte{1};
  UnmapPages(data, 4 * PageSize());
  EXPECT_TRUE(PreferNode(nullptr, 0, kNoNode).ok());
  EXPECT_EQ(PreferNode(nullptr, 4096, 1 << 20).code(), absl::StatusCode::kInvalidArgument);
}

TEST(NodeTextTest, SaysWhenThereIsNothingToPlace) {
  EXPECT_THAT(NodeText(0, 1), ::testing::HasSubstr("one memory node"));
  EXPECT_THAT(NodeText(kNoNode, 2), ::testing::HasSubstr("unknown"));
  EXPECT_EQ(NodeText(1, 2), "host memory on node 1 of 2");
}

}  // namespace
}  // namespace blockswap::offload
