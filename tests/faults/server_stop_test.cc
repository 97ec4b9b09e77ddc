// SPDX-License-Identifier: Apache-2.0
// Rows 41-43: servers that are stopped, and what systemd hears of them.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "server/base/unique_fd.h"
#include "tests/server/testing/daemon_process.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using Clock = std::chrono::steady_clock;

bool Runs(const v1::JobEvent& event) { return event.state() == v1::JOB_STATE_RUNNING; }

class ServerStopTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
};

using Row41 = ServerStopTest;
using Row42 = ServerStopTest;
using Row43 = ServerStopTest;

TEST_F(Row41, AStopSignalEndsWithACheckpointAndCodeZero) {
  for (const int signal : {SIGTERM, SIGINT}) {
    TemporaryDirectory directory;
    DaemonProcess daemon(directory.path());
    ASSERT_TRUE(daemon.ready());
    DaemonClient client(directory.path());
    const v1::Job job = client.Create("steps=6 hold_at=4");
    EXPECT_TRUE(client.WatchUntil(
        job.name(), [](const v1::JobEvent& event) { return event.progress().step() == 3; }));
    const pid_t worker = FakeWorkerPid(job);
    EXPECT_EQ(daemon.End(signal), 0);
    EXPECT_TRUE(IsGone(worker));
    DaemonProcess next(directory.path());
    ASSERT_TRUE(next.ready());
    LetGo(job);
    DaemonClient again(directory.path());
    EXPECT_EQ(again.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(again.Attempts(job.name())[1].start_step(), 3);
  }
}

TEST_F(Row41, ASecondSignalDoesNotWaitForADeafWorker) {
  DaemonProcess daemon(directory_.path(), {"grace=60", "terminate=60"});
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory_.path());
  const v1::Job job = client.Create("steps=6 hold_at=4 ignore_stop ignore_term");
  EXPECT_TRUE(client.WatchUntil(job.name(), Runs));
  const auto begin = Clock::now();
  // One that comes before the last is taken is merged with it by the kernel; more hurt nobody.
  siginfo_t ended{};
  while (ended.si_pid == 0 && Clock::now() - begin < std::chrono::seconds(20)) {
    daemon.Signal(SIGTERM);
    ::poll(nullptr, 0, 10);
    ::waitid(P_PID, static_cast<id_t>(daemon.pid()), &ended, WEXITED | WNOHANG | WNOWAIT);
  }
  EXPECT_EQ(daemon.End(0), 0);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(Row41, HangUpAndBrokenPipesEndNothing) {
  DaemonProcess daemon(directory_.path());
  ASSERT_TRUE(daemon.ready());
  daemon.Signal(SIGHUP);
  daemon.Signal(SIGPIPE);
  DaemonClient client(directory_.path());
  const v1::Job job = client.Create("steps=1");
  EXPECT_EQ(client.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(daemon.End(SIGTERM), 0);
}

TEST_F(Row42, AStopWhileAWorkerStartsOrSavesIsBoundedAndTheStoreStaysConsistent) {
  for (const char* script : {"no_attach", "steps=100000 save=1"}) {
    TemporaryDirectory directory;
    DaemonProcess daemon(directory.path(), {"grace=1", "terminate=0.2"});
    ASSERT_TRUE(daemon.ready());
    DaemonClient client(directory.path());
    const v1::Job job = client.Create(script);
    EXPECT_TRUE(client.WatchUntil(job.name(), [](const v1::JobEvent& event) {
      return event.state() == v1::JOB_STATE_STARTING || event.state() == v1::JOB_STATE_RUNNING;
    }));
    const auto begin = Clock::now();
    EXPECT_EQ(daemon.End(SIGTERM), 0) << script;
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10)) << script;
    DaemonProcess next(directory.path());
    ASSERT_TRUE(next.ready()) << script;
    DaemonClient again(directory.path());
    again.Cancel(job.name());
    EXPECT_EQ(again.WaitTerminal(job.name()).state(), v1::JOB_STATE_CANCELLED) << script;
  }
}

// Stands for systemd's end of NOTIFY_SOCKET.
class NotifySocket final {
 public:
  explicit NotifySocket(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  // Empty: nothing came in that time.
  std::string Next(int timeout_ms = 10000) {
    pollfd waiting{socket_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, timeout_ms) != 1) return "";
    char text[256];
    const ssize_t got = ::recv(socket_.get(), text, sizeof(text), 0);
    return std::string(text, got > 0 ? static_cast<size_t>(got) : 0);
  }

 private:
  const UniqueFd socket_;
};

// F131: ready is said once everything answers, and not before.
TEST_F(Row43, ReadyIsSaidWhenItServesAndTheWatchdogHearsTheSchedulersTicks) {
  NotifySocket systemd(directory_.path() + "/notify");
  DaemonProcess daemon(directory_.path(), {"http=0"},
                       {absl::StrCat("NOTIFY_SOCKET=", directory_.path(), "/notify")});
  std::string said;
  while ((said = systemd.Next()) == "WATCHDOG=1") {
  }
  EXPECT_EQ(said, "READY=1");
  ASSERT_TRUE(daemon.ready());
  EXPECT_TRUE(std::filesystem::exists(TestConfig(directory_.path()).state_dir + "/http.port"));
  DaemonClient client(directory_.path());
  EXPECT_EQ(client.WaitTerminal(client.Create("steps=1").name()).state(), v1::JOB_STATE_SUCCEEDED);
  for (int tick = 0; tick < 2; ++tick) EXPECT_EQ(systemd.Next(), "WATCHDOG=1");
  daemon.Signal(SIGSTOP);  // a scheduler that is stuck
  while (systemd.Next(/*timeout_ms=*/0) == "WATCHDOG=1") {
  }
  EXPECT_EQ(systemd.Next(/*timeout_ms=*/2500), "");
  daemon.Signal(SIGCONT);
  EXPECT_EQ(systemd.Next(), "WATCHDOG=1");
  daemon.Signal(SIGTERM);
  while ((said = systemd.Next()) == "WATCHDOG=1") {
  }
  EXPECT_EQ(said, "STOPPING=1");
  EXPECT_EQ(daemon.End(0), 0);
}

}  // namespace
}  // namespace blockswap::server
