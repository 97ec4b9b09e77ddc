// SPDX-License-Identifier: Apache-2.0
// Rows 13-15: servers that are killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/server/testing/daemon_process.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;

bool Runs(const v1::JobEvent& event) { return event.state() == v1::JOB_STATE_RUNNING; }

class ServerFaultsTest : public ::testing::Test {
 protected:
  // Sequences of a job's events grow, and no event is there twice.
  static void ExpectOrderedEvents(const std::vector<v1::JobEvent>& events) {
    int64_t last = 0;
    for (const v1::JobEvent& event : events) {
      EXPECT_GT(event.sequence(), last);
      last = event.sequence();
    }
  }
  // Every step's point is there once.
  static void ExpectPoints(const std::vector<v1::MetricPoint>& points, int64_t steps) {
    ASSERT_EQ(points.size(), static_cast<size_t>(steps));
    for (int64_t i = 0; i < steps; ++i) EXPECT_EQ(points[static_cast<size_t>(i)].step(), i + 1);
  }

  TemporaryDirectory directory_;
};

using Row13 = ServerFaultsTest;
using Row14 = ServerFaultsTest;
using Row15 = ServerFaultsTest;

TEST_F(Row13, KilledBetweenWritesOfCreateJobARetryMakesOneJob) {
  constexpr int kMaxWrites = 60;
  // There is none of that name: jobs that wait for it start no workers.
  constexpr char kNoDevice[] = "cuda:9";
  // A transaction writes pages of one kind after the other: of those behind the first every third.
  int deaths = 0, jobs_made = 0;
  for (int write = 1; write <= kMaxWrites; write += write < 6 ? 1 : 3) {
    const std::string request_id = absl::StrCat("00000000-0000-4000-8000-", 100000000000 + write);
    v1::Job job;
    bool survived = false;
    {
      DaemonProcess daemon(directory_.path(), {absl::StrCat("fatal_write=", write)});
      ASSERT_TRUE(daemon.ready());
      survived = DaemonClient(directory_.path()).TryCreate("", request_id, &job, kNoDevice).ok();
      deaths += survived ? 0 : 1;
    }
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    DaemonClient client(directory_.path());
    const std::string uid = job.uid();
    const grpc::Status again = client.TryCreate("", request_id, &job, kNoDevice);
    ASSERT_TRUE(again.ok()) << again.error_message();
    if (survived) {
      EXPECT_EQ(job.uid(), uid);
    }
    grpc::ClientContext context;
    v1::ListJobsResponse jobs;
    ASSERT_TRUE(client.stub().ListJobs(&context, v1::ListJobsRequest(), &jobs).ok());
    EXPECT_EQ(jobs.jobs_size(), ++jobs_made);
    if (survived) break;
  }
  // It did die in the middle of it.
  EXPECT_GE(deaths, 2);
}

TEST_F(Row14, KilledServersWorkersAreAdoptedAndNothingIsLostOrRunTwice) {
  v1::Job job;
  pid_t worker = 0;
  {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    DaemonClient client(directory_.path());
    job = client.Create("steps=6 save=2 hold_at=4");
    EXPECT_TRUE(client.WatchUntil(
        job.name(), [](const v1::JobEvent& event) { return event.progress().step() == 3; }));
    worker = FakeWorkerPid(job);
    EXPECT_EQ(daemon.End(SIGKILL), -SIGKILL);
  }
  EXPECT_EQ(::kill(worker, 0), 0);
  // Three more steps without a server, whose output and reports wait for the next one.
  LetGo(job);
  DaemonProcess daemon(directory_.path(), {"http=0"});
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory_.path());
  const v1::Job done = client.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.attempt(), 1);
  EXPECT_EQ(done.progress().step(), 6);
  EXPECT_EQ(client.Attempts(job.name()).size(), 1u);
  ExpectPoints(client.Points(job.name()), 6);
  const std::vector<v1::JobEvent> events = client.Events(job.name());
  ExpectOrderedEvents(events);
  int adopted = 0;
  std::multiset<std::string> checkpoints;
  for (const v1::JobEvent& event : events) {
    adopted += event.reason() == "WORKER_ADOPTED" ? 1 : 0;
    if (event.type() == v1::JobEvent::TYPE_CHECKPOINT_COMMITTED)
      checkpoints.insert(event.message());
    EXPECT_NE(event.state(), v1::JOB_STATE_RECOVERING);
  }
  EXPECT_EQ(adopted, 1);
  EXPECT_EQ(checkpoints, (std::multiset<std::string>{"step 2", "step 4", "step 6", "step 6"}));
  const std::string log = client.Log(job.name(), 1);
  for (int step = 1; step <= 6; ++step) {
    EXPECT_THAT(log, HasSubstr(absl::StrCat("attempt 1 step ", step, " line 0\n")));
  }
  EXPECT_TRUE(IsGone(worker));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path() + "/run/attempts"));
}

TEST_F(Row14, AWorkerThatFinishedWhileTheServerWasAwayHasSucceeded) {
  v1::Job job;
  {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    DaemonClient client(directory_.path());
    job = client.Create("steps=5 hold_at=3 hasty_exit");
    EXPECT_TRUE(client.WatchUntil(
        job.name(), [](const v1::JobEvent& event) { return event.progress().step() == 2; }));
    daemon.End(SIGKILL);
  }
  LetGo(job);
  EXPECT_TRUE(IsGone(FakeWorkerPid(job)));
  DaemonProcess daemon(directory_.path());
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory_.path());
  const v1::Job done = client.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.attempt(), 1);
  EXPECT_EQ(done.progress().step(), 5);
}

TEST_F(Row14, AnAdoptedWorkerIsSupervisedLikeAnyOther) {
  v1::Job job;
  {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    DaemonClient client(directory_.path());
    job = client.Create("steps=6 save=1 hold_at=4");
    EXPECT_TRUE(client.WatchUntil(
        job.name(), [](const v1::JobEvent& event) { return event.progress().step() == 3; }));
    daemon.End(SIGKILL);
  }
  const pid_t worker = FakeWorkerPid(job);
  DaemonProcess daemon(directory_.path());
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory_.path());
  // Waits for the worker's own answer: only a connected worker takes a checkpoint.
  grpc::ClientContext context;
  v1::CheckpointJobRequest request;
  request.set_name(job.name());
  v1::Job ignored;
  ASSERT_TRUE(client.stub().CheckpointJob(&context, request, &ignored).ok());
  EXPECT_TRUE(client.WatchUntil(job.name(), [](const v1::JobEvent& event) {
    return event.type() == v1::JobEvent::TYPE_CHECKPOINT_COMMITTED;
  }));
  ::kill(worker, SIGKILL);
  EXPECT_TRUE(client.WatchUntil(job.name(), [](const v1::JobEvent& event) {
    return event.state() == v1::JOB_STATE_RECOVERING;
  }));
  LetGo(job);
  const v1::Job done = client.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.attempt(), 2);
  EXPECT_EQ(client.Attempts(job.name())[0].failure().category(), v1::FAILURE_CATEGORY_WORKER_CRASH);
}

TEST_F(Row15, KilledInALoopDuringStartCheckpointAndCancelStatesStayLegal) {
  std::string name;
  v1::Job job;
  constexpr int kKills = 20;
  for (int kill = 0; kill < kKills; ++kill) {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready()) << "the store does not open after " << kill << " kills";
    DaemonClient client(directory_.path());
    if (name.empty()) {
      job = client.Create("steps=400 save=1 hold_at=390");
      name = job.name();
    } else if (kill % 3 == 1) {
      // At whatever it is doing by now: starting, or a checkpoint.
    } else {
      client.WatchUntil(name, Runs);
    }
    if (kill == kKills - 1) client.Cancel(name);
    daemon.End(SIGKILL);
  }
  DaemonProcess daemon(directory_.path());
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory_.path());
  const v1::Job done = client.WaitTerminal(name);
  EXPECT_EQ(done.state(), v1::JOB_STATE_CANCELLED);
  ExpectOrderedEvents(client.Events(name));
  for (const v1::Attempt& attempt : client.Attempts(name)) {
    // Whatever ended an attempt, it was no failure that counts.
    EXPECT_NE(attempt.failure().category(), v1::FAILURE_CATEGORY_WORKER_CRASH);
    EXPECT_NE(attempt.failure().category(), v1::FAILURE_CATEGORY_STALLED);
  }
  // Only a server that was killed before its worker's pid was stored leaves one that cannot be
  // adopted: the first two may have been.
  EXPECT_LE(client.Attempts(name).size(), 3u);
  EXPECT_TRUE(IsGone(FakeWorkerPid(job)));
}

}  // namespace
}  // namespace blockswap::server
