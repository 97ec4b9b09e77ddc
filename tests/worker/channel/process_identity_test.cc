// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/process_identity.h"

#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace blockswap::worker {
namespace {

TEST(ProcessIdentityTest, TellsThisProcessFromItsChild) {
  const ProcessIdentity self = ThisProcess();
  EXPECT_EQ(self.pid, getpid());
  EXPECT_GT(self.start_time, 0);
  EXPECT_EQ(self.boot_id.size(), 36u) << self.boot_id;
  const ProcessIdentity again = ThisProcess();
  EXPECT_EQ(again.start_time, self.start_time);

  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const ProcessIdentity other = ThisProcess();
    _exit(other.pid == getpid() && other.pid != self.pid && other.start_time >= self.start_time
              ? 0
              : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace blockswap::worker
