// SPDX-License-Identifier: Apache-2.0
// Rows 1, 3, 4, 5, 9, 11, 12, 46: workers that die, hang, lie and fork, and a server without room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/server/testing/daemon_process.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class WorkerFaultsTest : public ::testing::Test {
 protected:
  static v1::Job Cancel(TestServer& server, const std::string& name) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_name(name);
    v1::Job job;
    EXPECT_TRUE(server.training().CancelJob(&context, request, &job).ok());
    return job;
  }
  void ExpectNothingLeft() {
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path() + "/run/attempts"));
  }

  TemporaryDirectory directory_;
};

using Row1 = WorkerFaultsTest;
using Row3 = WorkerFaultsTest;
using Row4 = WorkerFaultsTest;
using Row5 = WorkerFaultsTest;
using Row9 = WorkerFaultsTest;
using Row11 = WorkerFaultsTest;
using Row12 = WorkerFaultsTest;
using Row46 = WorkerFaultsTest;

TEST_F(Row1, AKilledWorkerIsNoticedWithinASecondAndResumedFromItsCheckpoint) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("job", "steps=6 save=2 hold_at=6");
  server.Watch(job.name(), [](const v1::JobEvent& event) { return event.progress().step() == 5; });
  const pid_t worker = FakeWorkerPid(job);
  const auto killed = Clock::now();
  ::kill(worker, SIGKILL);
  server.Watch(job.name(),
               [](const v1::JobEvent& event) { return event.state() == v1::JOB_STATE_RECOVERING; });
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(1));
  LetGo(job);
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  const auto attempts = server.Attempts(job.name());
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].failure().category(), v1::FAILURE_CATEGORY_WORKER_CRASH);
  EXPECT_EQ(attempts[0].failure().signal(), SIGKILL);
  EXPECT_EQ(attempts[1].start_step(), 4);
  EXPECT_TRUE(IsGone(worker));  // no zombie either
  ExpectNothingLeft();
}

// F045: no job is stuck after the death of its worker, whatever it was doing, and stopping twice is
// harmless.
TEST_F(Row1, F045AWorkerKilledInAnyPhaseFreesItsDevice) {
  TestServer server(directory_.path());
  for (const char* script : {"steps=4 crash_load", "steps=4 crash_at=2",
                             "steps=4 save=1 crash_save", "steps=4 hold_at=2 crash_stop"}) {
    const bool stops = absl::string_view(script).find("crash_stop") != absl::string_view::npos;
    v1::CreateJobRequest request = server.Request("dies", script);
    request.mutable_spec()->mutable_retry()->set_max_restarts(0);
    v1::Job job;
    ASSERT_TRUE(server.Create(request, &job).ok());
    if (stops) {
      server.WaitState(job.name(), v1::JOB_STATE_RUNNING);
      Cancel(server, job.name());
      Cancel(server, job.name());
    }
    const v1::Job done = server.WaitTerminal(job.name());
    EXPECT_EQ(done.state(), stops ? v1::JOB_STATE_CANCELLED : v1::JOB_STATE_FAILED) << script;
    EXPECT_EQ(server.Attempts(job.name())[0].failure().signal(), SIGKILL) << script;
    EXPECT_EQ(Cancel(server, job.name()).state(), done.state()) << script;
    const v1::Job next = server.MustCreate("next", "steps=1");
    EXPECT_EQ(server.WaitTerminal(next.name()).state(), v1::JOB_STATE_SUCCEEDED) << script;
  }
  ExpectNothingLeft();
}

TEST_F(Row3, DeviceOutOfMemoryIsRetriedOnceWithMoreBlocksAwayAndBothAreRecorded) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("oom", "steps=6 exit_at=3 exit_code=11 exit_attempts=100");
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(done.failure().category(), v1::FAILURE_CATEGORY_OUT_OF_MEMORY_DEVICE);
  EXPECT_THAT(done.state_message(), HasSubstr("already tried with more blocks away"));
  const auto attempts = server.Attempts(job.name());
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].failure().exit_code(), 11);
  bool told = false;
  grpc::ClientContext context;
  v1::ListJobEventsRequest request;
  request.set_parent(job.name());
  v1::ListJobEventsResponse events;
  ASSERT_TRUE(server.training().ListJobEvents(&context, request, &events).ok());
  for (const v1::JobEvent& event : events.events()) {
    told |= event.message().find("trying once with blocks_to_swap 3") != std::string::npos;
  }
  EXPECT_TRUE(told);
}

// Nobody has to look for the plan: what was estimated and what there was stand side by side.
TEST_F(Row4, DeviceOutOfMemoryAtLoadFailsBeforeTheFirstStepWithEstimateAndActual) {
  TestServer server(directory_.path());
  v1::CreateJobRequest request =
      server.Request("oom", "steps=6 exit_load exit_code=11 exit_attempts=100");
  (*request.mutable_spec()->mutable_labels())["device_mib"] = "300";
  v1::Job job;
  ASSERT_TRUE(server.Create(request, &job).ok());
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(done.failure().category(), v1::FAILURE_CATEGORY_OUT_OF_MEMORY_DEVICE);
  EXPECT_EQ(done.progress().step(), 0);
  const auto has_both = ::testing::AllOf(
      HasSubstr("the ring needs 310.0 MiB, 290.0 MiB are free"),
      HasSubstr("the plan estimated 300.0 MiB on the device, the server granted 1.0 GiB"),
      HasSubstr("no step was made"));
  EXPECT_THAT(done.failure().message(), has_both);
  grpc::ClientContext context;
  v1::ListJobEventsRequest list;
  list.set_parent(job.name());
  v1::ListJobEventsResponse events;
  ASSERT_TRUE(server.training().ListJobEvents(&context, list, &events).ok());
  int told = 0;
  for (const v1::JobEvent& event : events.events()) {
    EXPECT_NE(event.state(), v1::JOB_STATE_RUNNING);
    if (event.reason() != "DEVICE_OUT_OF_MEMORY") continue;
    EXPECT_THAT(event.message(), has_both);
    ++told;
  }
  EXPECT_EQ(told, 2);  // before the one retry, and at the end
  for (const v1::Attempt& attempt : server.Attempts(job.name())) EXPECT_EQ(attempt.end_step(), 0);
}

// F047: a context that is poisoned ends with its process; the device is tried out by a fresh one.
TEST_F(Row5, F047AfterADeviceFaultAFreshProcessDecidesAboutTheDevice) {
  for (const bool answers : {true, false}) {
    TemporaryDirectory directory;
    ::setenv("FAKE_LINK_TEST", answers ? "" : "fail", /*overwrite=*/1);
    TestServer server(directory.path(), [](ServerConfig& config) {
      config.pass_environment.push_back("FAKE_LINK_TEST");
    });
    v1::CreateJobRequest request = server.Request("poisoned", "steps=4 exit_at=2 exit_code=12");
    request.mutable_spec()->mutable_retry()->set_max_restarts(0);
    v1::Job job;
    ASSERT_TRUE(server.Create(request, &job).ok());
    const v1::Job failed = server.WaitTerminal(job.name());
    EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(failed.failure().category(), v1::FAILURE_CATEGORY_DEVICE_FAULT);
    EXPECT_TRUE(IsGone(FakeWorkerPid(job)));
    const v1::Job next = server.MustCreate("next", "steps=1");
    if (answers) {
      EXPECT_EQ(server.WaitTerminal(next.name()).state(), v1::JOB_STATE_SUCCEEDED);
      continue;
    }
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    v1::Job waiting;
    do {
      ::poll(nullptr, 0, 2);
      waiting = server.Get(next.name());
    } while (waiting.state_message().find("does not answer") == std::string::npos &&
             Clock::now() < deadline);
    EXPECT_EQ(waiting.state_reason(), "DEVICE_UNHEALTHY") << waiting.state_message();
    EXPECT_THAT(waiting.state_message(), HasSubstr("does not answer a fresh process"));
    grpc::ClientContext context;
    v1::UndrainDeviceRequest undrain;
    undrain.set_name("devices/host");
    v1::Device device;
    ASSERT_TRUE(server.admin().UndrainDevice(&context, undrain, &device).ok());
    EXPECT_EQ(server.WaitTerminal(next.name()).state(), v1::JOB_STATE_SUCCEEDED);
  }
  ::unsetenv("FAKE_LINK_TEST");
}

TEST_F(Row9, AHungWorkerLeavesItsStacksAndIsReplaced) {
  TestServer server(directory_.path(), [](ServerConfig& config) {
    config.progress_timeout_seconds = 0.3;
    config.terminate_grace_seconds = 0.3;
  });
  const v1::Job job = server.MustCreate("hangs", "steps=5 save=1 hang_at=4 ignore_term");
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  const auto attempts = server.Attempts(job.name());
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].failure().category(), v1::FAILURE_CATEGORY_STALLED);
  EXPECT_EQ(attempts[0].failure().reason(), "NO_PROGRESS");
  EXPECT_EQ(attempts[1].start_step(), 3);
  const std::string log = server.Log(job.name(), 1);
  EXPECT_THAT(log, HasSubstr("stacks of all threads"));
  EXPECT_THAT(log, HasSubstr("(bs-channel):"));
}

TEST_F(Row11, AWorkerThatClosesItsStreamAndLivesIsReplaced) {
  TestServer server(directory_.path(), [](ServerConfig& config) {
    config.heartbeat_timeout_seconds = 0.5;
    config.terminate_grace_seconds = 0.3;
  });
  const v1::Job job = server.MustCreate("drops", "steps=3 save=1 drop_at=2");
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(server.Attempts(job.name())[0].failure().reason(), "HEARTBEAT_LOST");
}

int64_t PeakMemoryBytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

TEST_F(Row11, GarbageAndHugeMessagesEndTheAttemptAndPileUpNoMemory) {
  TestServer server(directory_.path());
  for (const char* script : {"speak_twice", "speak_huge"}) {
    [[maybe_unused]] const int64_t before = PeakMemoryBytes();
    v1::CreateJobRequest request = server.Request("liar", script);
    request.mutable_spec()->mutable_retry()->set_max_restarts(0);
    v1::Job job;
    ASSERT_TRUE(server.Create(request, &job).ok());
    const v1::Job done = server.WaitTerminal(job.name());
    EXPECT_EQ(done.state(), v1::JOB_STATE_FAILED) << script;
    EXPECT_EQ(done.failure().reason(), "WORKER_PROTOCOL") << script;
    // More than ten messages of 64 MiB: gRPC collects one before it looks at its size, and lets it
    // go.
#ifndef BLOCKSWAP_SANITIZED  // those keep what is freed
    EXPECT_LT(PeakMemoryBytes() - before, int64_t{128} << 20) << script;
#endif
  }
}

TEST_F(Row12, DaemonisedChildrenOfAWorkerGoWithIt) {
  TestServer server(directory_.path());
  for (const char* script : {"steps=2 leave_child", "steps=2 leave_child crash_at=2"}) {
    v1::CreateJobRequest request = server.Request("forks", script);
    request.mutable_spec()->mutable_retry()->set_max_restarts(0);
    v1::Job job;
    ASSERT_TRUE(server.Create(request, &job).ok());
    server.WaitTerminal(job.name());
    pid_t child = 0;
    std::ifstream(job.output_directory() + "/fake-child") >> child;
    ASSERT_GT(child, 1);
    EXPECT_TRUE(IsGone(child)) << script;
  }
}

TEST_F(Row46, WithoutDescriptorsNewJobsWaitAndRunningOnesGoOn) {
  TestServer server(directory_.path(), [](ServerConfig& config) { config.http = "127.0.0.1:0"; });
  // Connected before there is no descriptor left for it.
  const v1::Job first = server.MustCreate("first", "steps=1");
  EXPECT_EQ(server.WaitTerminal(first.name()).state(), v1::JOB_STATE_SUCCEEDED);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int lowest_free = ::dup(0);
  ::close(lowest_free);
  rlimit none = limit;
  none.rlim_cur = static_cast<rlim_t>(lowest_free) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const v1::Job job = server.MustCreate("waits", "steps=1");
  const auto events = server.Watch(job.name(), [](const v1::JobEvent& event) {
    return event.reason() == "SERVER_RESOURCES" || event.type() == v1::JobEvent::TYPE_END;
  });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().reason(), "SERVER_RESOURCES");
  EXPECT_EQ(server.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace blockswap::server
