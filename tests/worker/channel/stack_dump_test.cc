// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/stack_dump.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

// What is printed on standard error until `done` says it is enough, or ten seconds have passed.
template <typename Done>
std::string CaptureStderr(const std::function<void()>& act, Done done) {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  const int saved = dup(STDERR_FILENO);
  dup2(fds[1], STDERR_FILENO);
  act();
  std::string text;
  char buffer[4096];
  pollfd waiting{fds[0], POLLIN, 0};
  while (!done(text) && poll(&waiting, 1, 10000) == 1) {
    text.append(buffer, static_cast<size_t>(read(fds[0], buffer, sizeof(buffer))));
  }
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(fds[0]);
  close(fds[1]);
  return text;
}

TEST(StackDumpTest, EveryThreadPrintsItsStackAndTheProcessGoesOn) {
  InstallStackDump();
  int wake[2];
  ASSERT_EQ(pipe(wake), 0);
  std::thread stuck([&wake] {
    pthread_setname_np(pthread_self(), "stuck-loader");
    char byte = 0;
    EXPECT_EQ(read(wake[0], &byte, 1), 1);  // restarted after the signal
  });
  // Named only once it runs.
  char name[16] = "";
  while (std::string(name) != "stuck-loader") pthread_getname_np(stuck.native_handle(), name, 16);
  const std::string text = CaptureStderr([] { kill(getpid(), SIGQUIT); },
                                         [](const std::string& got) {
                                           const size_t header = got.find("(stuck-loader):\n");
                                           return header != std::string::npos &&
                                                  got.find('\n', header + 17) != std::string::npos;
                                         });
  EXPECT_THAT(text, HasSubstr("stacks of all threads"));
  EXPECT_THAT(text, HasSubstr("(stuck-loader):\n"));
  EXPECT_THAT(text, HasSubstr("stack_dump_test"));  // the file of a frame
  EXPECT_EQ(write(wake[1], "x", 1), 1);
  stuck.join();
}

}  // namespace
}  // namespace blockswap::worker
