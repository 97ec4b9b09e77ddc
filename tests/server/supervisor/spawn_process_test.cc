// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/spawn_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace blockswap::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ReadToEnd(const UniqueFd& fd) {
  std::string text;
  char buffer[256];
  ssize_t got = 0;
  while ((got = ::read(fd.get(), buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

int ExitStatus(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(SpawnProcessTest, TheChildHasTheGivenEnvironmentAlone) {
  Pipe output = *MakePipe();
  const auto pid =
      SpawnProcess({{"/usr/bin/env"}, {"A=1", "B=two words"}, {{output.write.get(), 1}}});
  ASSERT_TRUE(pid.ok()) << pid.status();
  output.write.Reset();
  EXPECT_EQ(ReadToEnd(output.read), "A=1\nB=two words\n");
  EXPECT_EQ(ExitStatus(*pid), 0);
}

TEST(SpawnProcessTest, DescriptorsThatWouldOverwriteEachOtherArriveWhereTheyShould) {
  Pipe low = *MakePipe();
  Pipe high = *MakePipe();
  // Each gets a number that one of ours has.
  const auto pid = SpawnProcess({{"/bin/sh", "-c", "echo low >&$LOW; echo high >&$HIGH"},
                                 {"LOW=3", "HIGH=4"},
                                 {{low.write.get(), 3}, {high.write.get(), 4}}});
  ASSERT_TRUE(pid.ok()) << pid.status();
  low.write.Reset();
  high.write.Reset();
  EXPECT_EQ(ReadToEnd(low.read), "low\n");
  EXPECT_EQ(ReadToEnd(high.read), "high\n");
  EXPECT_EQ(ExitStatus(*pid), 0);
}

TEST(SpawnProcessTest, NothingElseOfOursIsOpenThere) {
  Pipe output = *MakePipe();
  const UniqueFd ours(::dup2(output.read.get(), 9));  // not closed on exec
  const auto pid =
      SpawnProcess({{"/bin/sh", "-c", "test ! -e /proc/$$/fd/9 && readlink /proc/$$/fd/2"},
                    {},
                    {{output.write.get(), 1}}});
  ASSERT_TRUE(pid.ok()) << pid.status();
  output.write.Reset();
  EXPECT_EQ(ReadToEnd(output.read), "/dev/null\n");
  EXPECT_EQ(ExitStatus(*pid), 0);
}

TEST(SpawnProcessTest, TheChildLeadsAGroupOfItsOwn) {
  Pipe gate = *MakePipe();
  const auto pid = SpawnProcess({{"/bin/cat"}, {}, {{gate.read.get(), 0}}});
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_EQ(::getpgid(*pid), *pid);
  EXPECT_EQ(::getsid(*pid), *pid);
  gate.write.Reset();
  EXPECT_EQ(ExitStatus(*pid), 0);
}

TEST(SpawnProcessTest, AProgramThatIsNotThereIsNamed) {
  const auto pid = SpawnProcess({{"/nowhere/worker"}, {}, {}});
  ASSERT_FALSE(pid.ok());
  EXPECT_THAT(std::string(pid.status().message()), HasSubstr("/nowhere/worker"));
}

TEST(WorkerEnvironmentTest, PassesTheNamedVariablesThatAreSet) {
  ASSERT_EQ(::setenv("BLOCKSWAP_TEST_PASSED", "yes", /*overwrite=*/1), 0);
  EXPECT_THAT(
      WorkerEnvironment("GPU-1", {"BLOCKSWAP_TEST_PASSED", "BLOCKSWAP_TEST_NOT_SET"}),
      ElementsAre("LANG=C.UTF-8", "CUDA_VISIBLE_DEVICES=GPU-1", "BLOCKSWAP_TEST_PASSED=yes"));
  ::unsetenv("BLOCKSWAP_TEST_PASSED");
}

}  // namespace
}  // namespace blockswap::server
