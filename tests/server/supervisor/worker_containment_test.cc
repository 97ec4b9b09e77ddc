// SPDX-License-Identifier: Apache-2.0
// Also row 2 of tests/faults: what the kernel counts as killed for want of memory.
#include "server/supervisor/worker_containment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "server/supervisor/spawn_process.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;

pid_t Sleeper(const std::string& tag) {
  auto pid = SpawnProcess({{"/bin/sleep", "600"}, {absl::StrCat(kAttemptVariable, "=", tag)}, {}});
  EXPECT_TRUE(pid.ok()) << pid.status();
  return pid.ok() ? *pid : 0;
}

// How a child ended: -signal.
int Reap(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(WorkerContainmentTest, DescendantsAreKnownByTheirEnvironment) {
  const std::string tag = absl::StrCat("test-", ::getpid());
  const pid_t own = Sleeper(tag), other = Sleeper(tag + "0");
  WorkerContainment containment(tag, std::nullopt);
  EXPECT_GE(containment.KillRest(), 1);
  EXPECT_EQ(Reap(own), -SIGKILL);
  EXPECT_EQ(::kill(other, SIGTERM), 0);
  EXPECT_EQ(Reap(other), -SIGTERM);
}

TEST(WorkerContainmentTest, AControlGroupHoldsWhateverTheProcessBecomes) {
  auto root = CgroupRoot::Detect(absl::StrCat("test", ::getpid()));
  if (!root.ok()) GTEST_SKIP() << root.status();
  auto group = root->Make("worker", {});
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(root->List().size(), 1u);
  EXPECT_TRUE(root->Find("worker").has_value());
  // Without the variable only the group knows it.
  auto pid = SpawnProcess({{"/bin/sleep", "600"}, {}, {}});
  ASSERT_TRUE(pid.ok());
  ASSERT_TRUE(group->Add(*pid).ok());
  EXPECT_FALSE(group->Remove().ok());
  {
    WorkerContainment containment("nobody", *group);
    containment.KillRest();
    EXPECT_EQ(Reap(*pid), -SIGKILL);
  }
  EXPECT_TRUE(root->List().empty());
}

// Row 2: files as the kernel writes them.
TEST(WorkerContainmentTest, WhatTheGroupCountsAsOutOfMemoryNamesLimitAndUse) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() + "/memory.max") << (int64_t{2} << 30) << "\n";
  std::ofstream(directory.path() + "/memory.peak") << (int64_t{1} << 30) << "\n";
  const std::string events = directory.path() + "/memory.events";
  std::ofstream(events) << "low 0\nhigh 0\nmax 31\noom 2\noom_kill 0\noom_group_kill 0\n";
  const WorkerContainment containment("nobody", Cgroup(directory.path()));
  EXPECT_FALSE(containment.OutOfMemory().has_value());
  std::ofstream(events) << "low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n";
  ASSERT_TRUE(containment.OutOfMemory().has_value());
  EXPECT_THAT(*containment.OutOfMemory(), HasSubstr("used up to 1.0 GiB, its limit is 2.0 GiB"));
}

}  // namespace
}  // namespace blockswap::server
