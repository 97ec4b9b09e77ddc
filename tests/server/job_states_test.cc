// SPDX-License-Identifier: Apache-2.0
// The state of a job as every way of asking tells it, over its life and over restarts.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/jobs/progress_figures.h"
#include "server/jobs/transitions.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

class JobStatesTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(); }
  void Start() {
    server_.reset();
    server_ = std::make_unique<TestServer>(directory_.path());
  }
  v1::Job Succeeded() {
    return server_->WaitTerminal(server_->MustCreate("good", "steps=3 save=1").name());
  }
  v1::Job Failed() {
    return server_->WaitTerminal(
        server_->MustCreate("bad", "steps=3 exit_at=2 exit_code=14 exit_attempts=9").name());
  }
  v1::Job Cancelled() {
    const v1::Job job = server_->MustCreate("unwanted", "steps=3 hold_at=2");
    server_->WaitState(job.name(), v1::JOB_STATE_RUNNING);
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_name(job.name());
    v1::Job ignored;
    EXPECT_TRUE(server_->training().CancelJob(&context, request, &ignored).ok());
    return server_->WaitTerminal(job.name());
  }
  std::map<std::string, v1::JobState> ListStates() {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    EXPECT_TRUE(server_->training().ListJobs(&context, v1::ListJobsRequest(), &response).ok());
    std::map<std::string, v1::JobState> states;
    for (const v1::Job& job : response.jobs()) states[job.name()] = job.state();
    return states;
  }
  // What a new watcher is told first.
  std::map<std::string, v1::JobState> SnapshotStates() {
    grpc::ClientContext context;
    v1::WatchJobsRequest request;
    request.set_include_snapshot(true);
    auto stream = server_->training().WatchJobs(&context, request);
    std::map<std::string, v1::JobState> states;
    v1::JobEvent event;
    while (stream->Read(&event) && event.type() != v1::JobEvent::TYPE_SNAPSHOT_END) {
      states[event.job()] = event.state();
    }
    context.TryCancel();
    stream->Finish();
    return states;
  }
  // Times of the last change of every file that jobs wrote.
  std::map<std::string, int64_t> OutputTimes() const {
    std::map<std::string, int64_t> times;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(directory_.path() + "/outputs")) {
      struct stat facts {};
      ::stat(entry.path().c_str(), &facts);
      times[entry.path().string()] = facts.st_mtim.tv_sec * 1000000000 + facts.st_mtim.tv_nsec;
    }
    return times;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
};

// F117: what is over stays over, however often the server starts, and its outputs are not touched.
TEST_F(JobStatesTest, TerminalStatesStayOverRestarts) {
  const std::vector<v1::Job> jobs = {Succeeded(), Failed(), Cancelled()};
  EXPECT_EQ(jobs[0].state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(jobs[1].state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(jobs[2].state(), v1::JOB_STATE_CANCELLED);
  const auto times = OutputTimes();
  EXPECT_GT(times.size(), 3u);
  for (int restart = 0; restart < 5; ++restart) {
    Start();
    // A job that runs now shows that the scheduler had its chance to take the others, too.
    const v1::Job probe = server_->WaitTerminal(
        server_->MustCreate(absl::StrCat("probe", restart), "steps=1").name());
    EXPECT_EQ(probe.state(), v1::JOB_STATE_SUCCEEDED);
    for (const v1::Job& job : jobs) {
      EXPECT_EQ(server_->Get(job.name()).SerializeAsString(), job.SerializeAsString());
    }
    for (const auto& [path, time] : OutputTimes()) {
      const auto before = times.find(path);
      if (before == times.end()) continue;
      EXPECT_EQ(time, before->second) << path;
    }
  }
}

// F117: as after a kill -9 right behind the last write: the files as they are, opened by another.
TEST_F(JobStatesTest, TerminalStateIsOnDiskWhenAWatcherHearsOfIt) {
  const v1::Job job = server_->MustCreate("good", "steps=2");
  server_->WatchToEnd(job.name());
  const std::string copy = directory_.path() + "/crashed";
  std::filesystem::copy(directory_.path() + "/state", copy,
                        std::filesystem::copy_options::recursive);
  const auto store = JobStore::Open(copy + "/jobs.db");
  ASSERT_TRUE(store.ok()) << store.status();
  const auto kept = (*store)->GetJob(job.name().substr(5));
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->state, JobState::kSucceeded);
  EXPECT_EQ((*store)->CountJobs()->at(JobState::kSucceeded), 1);
}

// F118: list, get, watch and counts agree, and no job goes where the table of transitions does not
// lead.
TEST_F(JobStatesTest, EveryWayOfAskingAgrees) {
  std::vector<std::string> names;
  for (const char* script :
       {"steps=3 save=1", "steps=4 save=1 crash_at=3 crash_attempts=1",
        "steps=3 exit_at=2 exit_code=14 exit_attempts=9", "steps=2 crash_at=1 crash_attempts=99"}) {
    names.push_back(server_->MustCreate("job", script).name());
  }
  for (const std::string& name : names) {
    JobState before = JobState::kQueued;
    for (const v1::JobEvent& event : server_->WatchToEnd(name)) {
      if (event.state() == v1::JOB_STATE_UNSPECIFIED) continue;
      const auto state = static_cast<JobState>(event.state());
      if (event.type() == v1::JobEvent::TYPE_SNAPSHOT) before = state;
      EXPECT_TRUE(state == before || CanTransition(before, state))
          << name << ": " << std::string(StateName(before)) << " to "
          << std::string(StateName(state));
      before = state;
    }
    EXPECT_TRUE(IsTerminal(before)) << name;
    EXPECT_EQ(static_cast<JobState>(server_->Get(name).state()), before);
  }
  const auto list = ListStates();
  EXPECT_EQ(list, SnapshotStates());
  std::map<JobState, int64_t> counted;
  for (const auto& [name, state] : list) {
    EXPECT_EQ(server_->Get(name).state(), state) << name;
    ++counted[static_cast<JobState>(state)];
  }
  const auto counts = server_->daemon().store().CountJobs();
  ASSERT_TRUE(counts.ok()) << counts.status();
  for (const auto& [state, count] : *counts) {
    EXPECT_EQ(count, counted[state]) << std::string(StateName(state));
  }
}

// F065: progress is never above one, only a new attempt sets it back, and success is exactly one.
TEST_F(JobStatesTest, ProgressStaysBelowOneAndEndsThere) {
  const v1::Job job = server_->MustCreate("digits", "steps=6 save=2 crash_at=4 crash_attempts=1");
  int attempt = 0;
  int64_t step = 0;
  for (const v1::JobEvent& event : server_->WatchToEnd(job.name())) {
    if (event.type() != v1::JobEvent::TYPE_PROGRESS) continue;
    if (event.attempt() != attempt) step = 0;
    attempt = event.attempt();
    EXPECT_LE(event.progress().step(), event.progress().total_steps());
    EXPECT_GE(event.progress().step(), step);
    EXPECT_GE(event.progress().eta_seconds(), 0);
    step = event.progress().step();
  }
  const v1::Job over = server_->Get(job.name());
  EXPECT_EQ(over.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(over.progress().step(), 6);
  EXPECT_EQ(over.progress().total_steps(), 6);
  EXPECT_EQ(over.progress().eta_seconds(), 0);
}

}  // namespace
}  // namespace blockswap::server
