// SPDX-License-Identifier: Apache-2.0
// What a flood does to a whole server: tests/faults/stream_faults_test, row 29.
#include "server/rpc/connection_acceptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;

UniqueFd Connect(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  sockaddr_storage storage{};
  std::memcpy(&storage, &address, sizeof(address));
  const void* plain = &storage;
  if (::connect(socket.get(), static_cast<const sockaddr*>(plain), sizeof(address)) != 0)
    socket.Reset();
  return socket;
}

TEST(ListenTest, PortZeroIsAnyPortAndATakenOneIsTold) {
  const auto first = ListenOnTcp("127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_GT(first->port, 0);
  const auto second = ListenOnTcp(absl::StrCat("127.0.0.1:", first->port));
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another process holds it"));
}

TEST(ListenTest, EveryAddressOfANameHasTheSamePort) {
  const auto on = ListenOnTcp("localhost:0");
  ASSERT_TRUE(on.ok()) << on.status();
  EXPECT_GT(on->port, 0);
  for (const UniqueFd& socket : on->sockets) EXPECT_TRUE(socket.valid());
}

TEST(ListenTest, WhatIsNoneOfThisMachineIsTold) {
  // A label of more than 63 characters is no name at all: nobody is asked for it.
  const std::string no_name = absl::StrCat(std::string(64, 'a'), ".example:0");
  for (const std::string& address : {std::string("192.0.2.1:0"), no_name}) {
    const auto on = ListenOnTcp(address);
    EXPECT_TRUE(absl::IsFailedPrecondition(on.status())) << on.status();
    EXPECT_THAT(std::string(on.status().message()), HasSubstr(address));
  }
  EXPECT_FALSE(ListenOnUnix("/no/such/directory/d.sock").ok());
}

TEST(ConnectionAcceptorTest, HandsEachConnectionOverAndEndsWithItsListeners) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/d.sock";
  auto on = ListenOnUnix(path);
  ASSERT_TRUE(on.ok()) << on.status();
  std::promise<int> taken;
  std::vector<ConnectionAcceptor::Listener> listeners;
  listeners.push_back({*std::move(on), [&taken](int connection) { taken.set_value(connection); }});
  auto acceptor = ConnectionAcceptor::Start(std::move(listeners));
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  const UniqueFd client = Connect(path);
  ASSERT_TRUE(client.valid());
  auto connection = taken.get_future();
  ASSERT_EQ(connection.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  const UniqueFd server(connection.get());
  ASSERT_EQ(::send(server.get(), "x", 1, MSG_NOSIGNAL), 1);
  char got = 0;
  EXPECT_EQ(::recv(client.get(), &got, 1, 0), 1);
  EXPECT_EQ(got, 'x');
  acceptor->reset();
  EXPECT_FALSE(Connect(path).valid());
}

TEST(ConnectionAcceptorTest, TheLastDescriptorsAreNotForTcp) {
  auto on = ListenOnTcp("127.0.0.1:0");
  ASSERT_TRUE(on.ok()) << on.status();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(on->port));
  sockaddr_storage storage{};
  std::memcpy(&storage, &address, sizeof(address));
  const void* plain = &storage;
  std::atomic<int> taken{0};
  std::vector<ConnectionAcceptor::Listener> listeners;
  listeners.push_back({*std::move(on), [&taken](int connection) {
                         ::close(connection);
                         ++taken;
                       }});
  const auto acceptor = ConnectionAcceptor::Start(std::move(listeners));
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit few = limit;
  // The sanitizer of undefined behaviour needs descriptors for its first look at the logger.
  LogInfo("few descriptors from here on");
  // More than are open, fewer than twice as many: half of it and what lies above is reserved.
  few.rlim_cur = static_cast<rlim_t>(client.get()) + 2;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(::connect(client.get(), static_cast<const sockaddr*>(plain), sizeof(address)), 0);
  pollfd wait = {client.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 30000), 1);
  char got = 0;
  EXPECT_EQ(::recv(client.get(), &got, 1, 0), 0);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(taken.load(), 0);
}

}  // namespace
}  // namespace blockswap::server
