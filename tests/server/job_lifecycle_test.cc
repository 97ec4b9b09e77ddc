// SPDX-License-Identifier: Apache-2.0
// Whole lives of jobs: a real daemon, real processes, fake training.
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/match.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

class JobLifecycleTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
};

TEST_F(JobLifecycleTest, SubmittedJobRunsInAWorkerAndSucceeds) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("digits", "steps=5 save=2");
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_TRUE(absl::StartsWith(job.name(), "jobs/digits-"));

  const auto events = server.WatchToEnd(job.name());
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().type(), v1::JobEvent::TYPE_END);
  EXPECT_EQ(events.back().end_reason(), v1::JobEvent::END_REASON_JOB_TERMINAL);

  const v1::Job done = server.Get(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.attempt(), 1);
  EXPECT_EQ(done.progress().step(), 5);
  EXPECT_EQ(done.plan().text(), "a fake plan");
  EXPECT_TRUE(absl::StrContains(server.Log(job.name(), 0), "attempt 1 step 5"));
}

TEST_F(JobLifecycleTest, CrashedWorkerIsRestartedFromItsCheckpoint) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("crash", "steps=6 save=2 crash_at=5 crash_attempts=1");
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.attempt(), 2);
  const auto attempts = server.Attempts(job.name());
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].failure().category(), v1::FAILURE_CATEGORY_WORKER_CRASH);
  EXPECT_EQ(attempts[0].failure().signal(), SIGKILL);
  EXPECT_EQ(attempts[1].start_step(), 4);
  const std::string log = server.Log(job.name(), 2);
  EXPECT_TRUE(absl::StrContains(log, "attempt 2 step 5")) << log;
  EXPECT_FALSE(absl::StrContains(log, "step 4")) << log;
}

TEST_F(JobLifecycleTest, GivesUpAfterTheAllowedRestarts) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("crash", "steps=6 crash_at=2 crash_attempts=100");
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(done.attempt(), 4);
  EXPECT_EQ(done.failure().category(), v1::FAILURE_CATEGORY_WORKER_CRASH);
}

TEST_F(JobLifecycleTest, NumericsFailureIsNotRetried) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("nan", "steps=6 exit_at=3 exit_code=14");
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(done.attempt(), 1);
  EXPECT_EQ(done.failure().category(), v1::FAILURE_CATEGORY_NUMERICS);
  EXPECT_EQ(done.failure().reason(), "FAKE_FAILURE");
}

TEST_F(JobLifecycleTest, DeviceOutOfMemoryIsRetriedOnceWithMoreBlocksAway) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("oom", "steps=6 exit_at=3 exit_code=11 exit_attempts=100");
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(done.attempt(), 2);
  EXPECT_EQ(done.failure().category(), v1::FAILURE_CATEGORY_OUT_OF_MEMORY_DEVICE);
}

TEST_F(JobLifecycleTest, CancelledJobWritesACheckpointFirst) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("cancel", "steps=6 hold_at=3");
  server.WaitState(job.name(), v1::JOB_STATE_RUNNING);
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_name(job.name());
  v1::Job cancelling;
  ASSERT_TRUE(server.training().CancelJob(&context, request, &cancelling).ok());
  EXPECT_EQ(cancelling.state(), v1::JOB_STATE_CANCELLING);
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_CANCELLED);
  grpc::ClientContext list_context;
  v1::ListCheckpointsRequest list;
  list.set_parent(job.name());
  v1::ListCheckpointsResponse checkpoints;
  ASSERT_TRUE(server.training().ListCheckpoints(&list_context, list, &checkpoints).ok());
  ASSERT_EQ(checkpoints.checkpoints_size(), 1);
  EXPECT_EQ(checkpoints.checkpoints(0).step(), 2);
}

TEST_F(JobLifecycleTest, DeafWorkerIsKilled) {
  TestServer server(directory_.path(), [](ServerConfig& config) {
    config.stop_grace_seconds = 0.05;
    config.terminate_grace_seconds = 0.05;
  });
  const v1::Job job = server.MustCreate("deaf", "steps=6 hold_at=3 ignore_stop ignore_term");
  server.WaitState(job.name(), v1::JOB_STATE_RUNNING);
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_name(job.name());
  v1::Job ignored;
  ASSERT_TRUE(server.training().CancelJob(&context, request, &ignored).ok());
  EXPECT_EQ(server.WaitTerminal(job.name()).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobLifecycleTest, WorkerThatNeverConnectsIsStalled) {
  TestServer server(directory_.path(),
                    [](ServerConfig& config) { config.attach_timeout_seconds = 0.1; });
  v1::CreateJobRequest request = server.Request("lost", "no_attach");
  request.mutable_spec()->mutable_retry()->set_max_restarts(0);
  v1::Job job;
  ASSERT_TRUE(server.Create(request, &job).ok());
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(done.failure().category(), v1::FAILURE_CATEGORY_STALLED);
  EXPECT_EQ(done.failure().reason(), "ATTACH_TIMEOUT");
}

TEST_F(JobLifecycleTest, StoppedServerGoesOnWithItsJobsAtTheNextStart) {
  std::string name;
  {
    TestServer server(directory_.path());
    const v1::Job job = server.MustCreate("resume", "steps=6 hold_at=4");
    name = job.name();
    // Held at step 4: three steps are done when the server stops.
    server.Watch(name, [](const v1::JobEvent& event) { return event.progress().step() == 3; });
    server.daemon().Stop();
    const auto stored = server.daemon().store().GetJob(name.substr(5));
    ASSERT_TRUE(stored.ok());
    EXPECT_EQ(stored->state, JobState::kRecovering);
    EXPECT_EQ(stored->state_reason, "SERVER_STOPPED");
    LetGo(job);
  }
  TestServer server(directory_.path());
  const v1::Job done = server.WaitTerminal(name);
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.attempt(), 2);
  EXPECT_TRUE(absl::StartsWith(server.Log(name, 2), "attempt 2 step 4"));
}

TEST_F(JobLifecycleTest, OneJobADeviceAndTheRestSayWhyTheyWait) {
  TestServer server(directory_.path());
  const v1::Job first = server.MustCreate("first", "steps=2 hold_at=2");
  server.WaitState(first.name(), v1::JOB_STATE_RUNNING);
  const v1::Job second = server.MustCreate("second", "steps=2");
  server.Watch(second.name(),
               [](const v1::JobEvent& event) { return event.reason() == "WAITING_FOR_DEVICE"; });
  const v1::Job waiting = server.Get(second.name());
  EXPECT_EQ(waiting.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(waiting.queue_position(), 1);
  EXPECT_TRUE(absl::StrContains(waiting.state_message(), "held by job first-"))
      << waiting.state_message();
  LetGo(first);
  EXPECT_EQ(server.WaitTerminal(second.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace blockswap::server
