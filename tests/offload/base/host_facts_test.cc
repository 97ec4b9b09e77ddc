// SPDX-License-Identifier: Apache-2.0
#include "offload/base/host_facts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "offload/base/byte_size.h"
#include "tests/fakes/lock_limit.h"

namespace blockswap::base {
namespace {

using offload::ScopedLockLimit;

// Kernel files of a made-up host with 1000 MiB available.
class HostFactsTest : public ::testing::Test {
 protected:
  HostFactsTest() : root_(::testing::TempDir() + "host_facts_" + UniqueName()) {
    paths_ = {root_ + "/proc", root_ + "/cgroup"};
    Write("proc/meminfo", "MemTotal: 4096000 kB\nMemAvailable: 1024000 kB\n");
    Write("proc/self/status", "VmLck:\t    2048 kB\nCapEff:\t0000000000000000\n");
  }
  ~HostFactsTest() override { std::filesystem::remove_all(root_); }

  static std::string UniqueName() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  std::string root_;
  HostFactsPaths paths_;
};

TEST_F(HostFactsTest, WithoutControlGroupsMemAvailableDecides) {
  const HostFacts facts = ReadHostFacts(paths_);
  EXPECT_EQ(facts.available_bytes, 1000 * kMiB);
  EXPECT_EQ(facts.control_group_limit, kNoLimit);
  EXPECT_EQ(facts.host_total_bytes, 4000 * kMiB);
  EXPECT_EQ(facts.locked_bytes, 2 * kMiB);
}

TEST_F(HostFactsTest, TheTightestGroupOnTheWayUpDecides) {
  Write("proc/self/cgroup", "0::/jobs/train\n");
  Write("cgroup/jobs/train/memory.max", "max\n");
  Write("cgroup/jobs/memory.max", std::to_string(300 * kMiB) + "\n");
  Write("cgroup/jobs/memory.current", std::to_string(100 * kMiB) + "\n");
  const HostFacts facts = ReadHostFacts(paths_);
  EXPECT_EQ(facts.control_group_limit, 300 * kMiB);
  EXPECT_EQ(facts.available_bytes, 200 * kMiB);
}

TEST_F(HostFactsTest, PageCacheThatTheKernelWouldGiveUpIsNotUsed) {
  Write("proc/self/cgroup", "0::/\n");
  Write("cgroup/memory.max", std::to_string(300 * kMiB) + "\n");
  Write("cgroup/memory.current", std::to_string(280 * kMiB) + "\n");
  Write("cgroup/memory.stat", "anon 1\ninactive_file " + std::to_string(80 * kMiB) + "\n");
  EXPECT_EQ(ReadHostFacts(paths_).available_bytes, 100 * kMiB);
}

// F090: what can be locked is a share of what is free, whatever the limit says.
TEST_F(HostFactsTest, AFifthOfTheAvailableMemoryIsNeverLocked) {
  Write("proc/self/status", "VmLck:\t 0 kB\nCapEff:\t0000000000004000\n");
  const HostFacts facts = ReadHostFacts(paths_);
  EXPECT_EQ(facts.lockable_bytes, facts.available_bytes * 4 / 5);
}

TEST_F(HostFactsTest, AGroupOverItsLimitLeavesNothing) {
  Write("proc/self/cgroup", "0::/\n");
  Write("cgroup/memory.max", std::to_string(10 * kMiB) + "\n");
  Write("cgroup/memory.current", std::to_string(11 * kMiB) + "\n");
  EXPECT_EQ(ReadHostFacts(paths_).available_bytes, 0);
}

TEST_F(HostFactsTest, TheLockLimitCountsWhatIsLockedAlready) {
  const ScopedLockLimit limit(8 * kMiB);
  ASSERT_TRUE(limit.active());
  const HostFacts facts = ReadHostFacts(paths_);
  EXPECT_EQ(facts.lock_limit_bytes, 8 * kMiB);
  EXPECT_EQ(facts.lockable_bytes, 6 * kMiB);
}

TEST_F(HostFactsTest, TheLockCapabilityLiftsTheLimit) {
  const ScopedLockLimit limit(8 * kMiB);
  Write("proc/self/status", "VmLck:\t 2048 kB\nCapEff:\t0000000000004000\n");  // bit 14
  const HostFacts facts = ReadHostFacts(paths_);
  EXPECT_EQ(facts.lock_limit_bytes, kNoLimit);
  EXPECT_EQ(facts.lockable_bytes, 800 * kMiB);  // kLockableShare of the available
}

TEST(ReadHostFactsTest, ReadsTheRunningHost) {
  const HostFacts facts = ReadHostFacts();
  EXPECT_GT(facts.available_bytes, 0);
  EXPECT_GE(facts.lockable_bytes, 0);
  EXPECT_LE(facts.lockable_bytes, facts.available_bytes);
}

}  // namespace
}  // namespace blockswap::base
