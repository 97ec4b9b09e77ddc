// SPDX-License-Identifier: Apache-2.0
// Daemons that are killed, doubled and stopped.
#include "server/daemon.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/testing/daemon_process.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

class DaemonTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
};

TEST_F(DaemonTest, WhenServerAndWorkerWereKilledTheJobGoesOnFromItsCheckpoint) {
  v1::Job job;
  {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    DaemonClient client(directory_.path());
    job = client.Create("steps=6 save=1 hold_at=4");
    EXPECT_TRUE(client.WatchUntil(
        job.name(), [](const v1::JobEvent& event) { return event.progress().step() == 3; }));
    EXPECT_EQ(daemon.End(SIGKILL), -SIGKILL);
    const pid_t worker = FakeWorkerPid(job);
    ::kill(worker, SIGKILL);
    EXPECT_TRUE(IsGone(worker));
    LetGo(job);
  }
  DaemonProcess daemon(directory_.path());
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory_.path());
  const v1::Job done = client.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.attempt(), 2);
  bool restarted = false;
  for (const v1::JobEvent& event : client.Events(job.name())) {
    restarted |= event.state() == v1::JOB_STATE_RECOVERING && event.reason() == "SERVER_RESTARTED";
  }
  EXPECT_TRUE(restarted);
  EXPECT_EQ(client.Attempts(job.name())[1].start_step(), 3);
}

TEST_F(DaemonTest, KillingTheServerManyTimesNeverUsesUpARestart) {
  std::string name;
  constexpr int kKills = 6;  // more than the three restarts a job has
  for (int kill = 0; kill < kKills; ++kill) {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    DaemonClient client(directory_.path());
    if (name.empty()) name = client.Create("steps=3 hold_at=2").name();
    EXPECT_TRUE(client.WatchUntil(
        name, [](const v1::JobEvent& event) { return event.state() == v1::JOB_STATE_RUNNING; }));
    daemon.End(SIGKILL);
  }
  DaemonProcess daemon(directory_.path());
  DaemonClient client(directory_.path());
  const v1::Job job = client.Get(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  // One worker outlives them all.
  EXPECT_EQ(job.attempt(), 1);
  EXPECT_EQ(daemon.End(SIGTERM), 0);
}

TEST_F(DaemonTest, SecondServerIsRefusedAndTheFirstIsUnharmed) {
  DaemonProcess first(directory_.path());
  ASSERT_TRUE(first.ready());
  DaemonProcess second(directory_.path());
  EXPECT_FALSE(second.ready());
  EXPECT_EQ(second.End(SIGCONT), 1);
  DaemonClient client(directory_.path());
  const v1::Job job = client.Create("steps=1");
  EXPECT_EQ(client.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(DaemonTest, SecondServerNamesTheHoldersPid) {
  TestServer first(directory_.path());
  const auto second =
      Daemon::Start(TestConfig(directory_.path()), std::make_unique<ScriptedChecker>());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(absl::StrContains(second.status().message(), absl::StrCat("pid ", ::getpid())))
      << second.status();
}

TEST_F(DaemonTest, TwoStateDirectoriesCannotShareASocket) {
  TestServer first(directory_.path());
  ServerConfig config = TestConfig(directory_.path());
  config.state_dir += "-other";
  const auto second = Daemon::Start(config, std::make_unique<ScriptedChecker>());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAborted);
}

TEST_F(DaemonTest, SocketsAndDirectoriesArePrivate) {
  TestServer server(directory_.path());
  const ServerConfig& config = server.daemon().config();
  const auto mode = [](const std::string& path) {
    struct stat facts {};
    EXPECT_EQ(::stat(path.c_str(), &facts), 0) << path;
    return facts.st_mode & 0777;
  };
  EXPECT_EQ(mode(config.socket), 0600u);
  EXPECT_EQ(mode(std::filesystem::path(config.socket).parent_path()), 0700u);
  EXPECT_EQ(mode(std::filesystem::path(config.socket).parent_path() / "workers.sock"), 0600u);
  EXPECT_EQ(mode(config.state_dir), 0700u);
}

TEST_F(DaemonTest, ServerInfoNamesTheCommitOfItsCheckout) {
  TestServer server(directory_.path());
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(server.admin().GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  const std::filesystem::path source = std::getenv("BLOCKSWAP_SOURCE_DIR");
  if (std::filesystem::exists(source / ".git")) {
    EXPECT_GE(info.commit().size(), 12u) << info.commit();
    EXPECT_EQ(info.commit().find_first_not_of("0123456789abcdef"), std::string::npos)
        << info.commit();
  } else {
    EXPECT_EQ(info.commit(), "unknown");
  }
}

TEST_F(DaemonTest, TakenHttpPortFailsTheStart) {
  TestServer first(directory_.path(), [](ServerConfig& config) { config.http = "127.0.0.1:0"; });
  TemporaryDirectory other;
  ServerConfig config = TestConfig(other.path());
  config.http = absl::StrCat("127.0.0.1:", first.daemon().http_port());
  const auto second = Daemon::Start(config, std::make_unique<ScriptedChecker>());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition) << second.status();
}

TEST_F(DaemonTest, NoWorkerOutlivesItsServersOrderlyStop) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("job", "steps=3 hold_at=2");
  server.WaitState(job.name(), v1::JOB_STATE_RUNNING);
  const auto record = server.daemon().store().GetJob(job.name().substr(5));
  ASSERT_TRUE(record.ok());
  const auto attempts = server.daemon().store().ListAttempts(record->uid);
  ASSERT_TRUE(attempts.ok() && !attempts->empty());
  const auto pid = static_cast<pid_t>(attempts->back().pid);
  EXPECT_EQ(::kill(pid, 0), 0);
  server.daemon().Stop();
  EXPECT_EQ(::kill(pid, 0), -1);
}

}  // namespace
}  // namespace blockswap::server
