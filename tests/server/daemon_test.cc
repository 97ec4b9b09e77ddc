// SPDX-License-Identifier: Apache-2.0
// Daemons that are killed, doubled and stopped.
#include "server/daemon.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

// A fake_daemon process.
class DaemonProcess final {
 public:
  explicit DaemonProcess(const std::string& directory) {
    int output[2];
    EXPECT_EQ(::pipe(output), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output[1], 1);
    posix_spawn_file_actions_addclose(&actions, output[0]);
    posix_spawn_file_actions_addclose(&actions, output[1]);
    std::string binary = ::getenv("BLOCKSWAP_FAKE_DAEMON"), argument = directory;
    std::array<char*, 3> argv = {binary.data(), argument.data(), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, binary.c_str(), &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(output[1]);
    std::array<char, 16> text{};
    // The end of the pipe when it could not start.
    ready_ = ::read(output[0], text.data(), text.size()) > 0;
    ::close(output[0]);
  }
  ~DaemonProcess() { End(SIGKILL); }
  bool ready() const { return ready_; }
  // Exit code, or -signal.
  int End(int signal) {
    if (pid_ == 0) return 0;
    ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return (status & 0x7f) != 0 ? -(status & 0x7f) : (status >> 8) & 0xff;
  }

 private:
  pid_t pid_ = 0;
  bool ready_ = false;
};

class DaemonTest : public ::testing::Test {
 protected:
  void Connect() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::TrainingService::NewStub(
        grpc::CreateCustomChannel(absl::StrCat("unix:", TestConfig(directory_.path()).socket),
                                  grpc::experimental::LocalCredentials(UDS), arguments));
  }
  v1::Job Create(const std::string& script) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::CreateJobRequest request;
    request.mutable_spec()->set_name("job");
    (*request.mutable_spec()->mutable_labels())["fake"] = script;
    v1::Job job;
    const grpc::Status status = stub_->CreateJob(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  void WatchUntil(const std::string& name, const std::function<bool(const v1::JobEvent&)>& done) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    v1::WatchJobsRequest request;
    request.set_job(name);
    request.set_include_snapshot(true);
    auto stream = stub_->WatchJobs(&context, request);
    v1::JobEvent event;
    while (stream->Read(&event) && !done(event)) {
    }
    context.TryCancel();
  }
  v1::Job Get(const std::string& name) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_name(name);
    v1::Job job;
    EXPECT_TRUE(stub_->GetJob(&context, request, &job).ok());
    return job;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<v1::TrainingService::Stub> stub_;
};

TEST_F(DaemonTest, KilledServerEndsTheOrphanAndGoesOnFromItsCheckpoint) {
  std::string name;
  {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    Connect();
    const v1::Job job = Create("steps=6 save=1 hold_at=4");
    name = job.name();
    WatchUntil(name, [](const v1::JobEvent& event) { return event.progress().step() == 3; });
    EXPECT_EQ(daemon.End(SIGKILL), -SIGKILL);
    LetGo(job);
  }
  DaemonProcess daemon(directory_.path());
  ASSERT_TRUE(daemon.ready());
  Connect();
  bool restarted = false;
  WatchUntil(name,
             [](const v1::JobEvent& event) { return event.type() == v1::JobEvent::TYPE_END; });
  const v1::Job done = Get(name);
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.attempt(), 2);
  grpc::ClientContext context;
  v1::ListJobEventsRequest request;
  request.set_parent(name);
  v1::ListJobEventsResponse events;
  ASSERT_TRUE(stub_->ListJobEvents(&context, request, &events).ok());
  for (const v1::JobEvent& event : events.events()) {
    restarted |= event.state() == v1::JOB_STATE_RECOVERING && event.reason() == "SERVER_RESTARTED";
  }
  EXPECT_TRUE(restarted);
}

TEST_F(DaemonTest, KillingTheServerManyTimesNeverUsesUpARestart) {
  std::string name;
  constexpr int kKills = 6;  // more than the three restarts a job has
  for (int kill = 0; kill < kKills; ++kill) {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    Connect();
    if (name.empty()) name = Create("steps=3 hold_at=2").name();
    WatchUntil(name,
               [](const v1::JobEvent& event) { return event.state() == v1::JOB_STATE_RUNNING; });
    daemon.End(SIGKILL);
  }
  DaemonProcess daemon(directory_.path());
  Connect();
  WatchUntil(name,
             [](const v1::JobEvent& event) { return event.state() == v1::JOB_STATE_RUNNING; });
  const v1::Job job = Get(name);
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job.attempt(), kKills + 1);
  EXPECT_EQ(daemon.End(SIGTERM), 0);
}

TEST_F(DaemonTest, SecondServerIsRefusedAndTheFirstIsUnharmed) {
  DaemonProcess first(directory_.path());
  ASSERT_TRUE(first.ready());
  DaemonProcess second(directory_.path());
  EXPECT_FALSE(second.ready());
  EXPECT_EQ(second.End(SIGCONT), 1);
  Connect();
  const v1::Job job = Create("steps=1");
  WatchUntil(job.name(),
             [](const v1::JobEvent& event) { return event.type() == v1::JobEvent::TYPE_END; });
  EXPECT_EQ(Get(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
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
