// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/listen_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;

// F054: a port that somebody has, with what the kernel says about it.
TEST(ListenErrorTest, TakenPortIsInUse) {
  const UniqueFd holder(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(holder.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(holder.get(), 1), 0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::getsockname(holder.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_THAT(WhyCannotListen(absl::StrCat("127.0.0.1:", ntohs(address.sin_port))),
              HasSubstr("already in use"));
}

// F054: a port below 1024, asked for by somebody who may not have it.
TEST(ListenErrorTest, PrivilegedPortIsDenied) {
  int first_free = 1024;
  std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> first_free;
  if (first_free <= 1) GTEST_SKIP() << "this kernel has no privileged ports";
  const pid_t child = ::fork();
  if (child == 0) {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2] = {};
    ::syscall(SYS_capset, &header, none);
    ::_exit(WhyCannotListen("127.0.0.1:1") == "Permission denied" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ListenErrorTest, WhatIsNoAddressIsSaidToBeNone) {
  EXPECT_THAT(WhyCannotListen("127.0.0.1:99999"), HasSubstr("no number from 0 to 65535"));
  EXPECT_THAT(WhyCannotListen("127.0.0.1:http"), HasSubstr("no number from 0 to 65535"));
  EXPECT_THAT(WhyCannotListen("127.0.0.1"), HasSubstr("no number from 0 to 65535"));
  EXPECT_THAT(WhyCannotListen("localhost:80"), HasSubstr("localhost is no numeric address"));
}

}  // namespace
}  // namespace blockswap::server
