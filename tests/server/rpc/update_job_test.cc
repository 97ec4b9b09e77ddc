// SPDX-License-Identifier: Apache-2.0
// UpdateJob through a real server with a fake worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;

class UpdateJobTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Start();
    // Holds the only device, so that other jobs stay where they are.
    running_ = server_->MustCreate("running", "steps=3 hold_at=2");
    server_->WaitState(running_.name(), v1::JOB_STATE_RUNNING);
    waiting_ = server_->MustCreate("waiting", "steps=1");
  }
  void Start() { server_ = std::make_unique<TestServer>(directory_.path()); }

  grpc::Status Update(const v1::UpdateJobRequest& request, v1::Job* job) {
    grpc::ClientContext context;
    return server_->training().UpdateJob(&context, request, job);
  }
  static v1::UpdateJobRequest Budget(const v1::Job& job, const std::string& budget) {
    v1::UpdateJobRequest request;
    request.mutable_job()->set_name(job.name());
    request.mutable_job()->mutable_spec()->mutable_memory()->set_vram_budget(budget);
    request.mutable_update_mask()->add_paths("memory.vram_budget");
    return request;
  }
  std::vector<v1::JobEvent> Events(const v1::Job& job) {
    grpc::ClientContext context;
    v1::ListJobEventsRequest request;
    request.set_parent(job.name());
    request.set_page_size(1000);
    v1::ListJobEventsResponse response;
    EXPECT_TRUE(server_->training().ListJobEvents(&context, request, &response).ok());
    return {response.events().begin(), response.events().end()};
  }
  int CountUpdates(const v1::Job& job) {
    int count = 0;
    for (const v1::JobEvent& event : Events(job))
      count += event.type() == v1::JobEvent::TYPE_UPDATED;
    return count;
  }
  // What the fake worker was told last; waits for it.
  static std::string ToldMemory(const v1::Job& job, const std::string& expected) {
    const std::string path = job.output_directory() + "/fake-memory";
    std::string text;
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (absl::Now() < deadline && text.find(expected) == std::string::npos) {
      std::ifstream file(path);
      std::stringstream content;
      content << file.rdbuf();
      text = content.str();
    }
    return text;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
  v1::Job running_, waiting_;
};

TEST_F(UpdateJobTest, WaitingJobIsPlannedAnewAndKeptOverARestart) {
  v1::UpdateJobRequest request = Budget(waiting_, "10GiB");
  request.mutable_job()->mutable_spec()->set_priority(9);
  request.mutable_update_mask()->add_paths("priority");
  v1::Job job;
  const grpc::Status status = Update(request, &job);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(job.spec().memory().vram_budget(), "10GiB");
  EXPECT_EQ(job.spec().priority(), 9);
  EXPECT_EQ(job.plan().text(), "planned by the test");
  EXPECT_NE(job.etag(), waiting_.etag());
  LetGo(running_);
  server_.reset();
  Start();
  EXPECT_EQ(server_->Get(waiting_.name()).spec().memory().vram_budget(), "10GiB");
}

TEST_F(UpdateJobTest, EventNamesWhatChanged) {
  v1::Job job;
  ASSERT_TRUE(Update(Budget(waiting_, "10GiB"), &job).ok());
  const std::vector<v1::JobEvent> events = Events(waiting_);
  const auto found = std::find_if(events.begin(), events.end(), [](const v1::JobEvent& event) {
    return event.type() == v1::JobEvent::TYPE_UPDATED;
  });
  ASSERT_NE(found, events.end());
  EXPECT_EQ(found->reason(), "UPDATED_BY_CLIENT");
  EXPECT_THAT(found->message(), HasSubstr("memory.vram_budget"));
}

TEST_F(UpdateJobTest, AskingTwiceIsHarmless) {
  v1::Job first, second;
  ASSERT_TRUE(Update(Budget(waiting_, "10GiB"), &first).ok());
  ASSERT_TRUE(Update(Budget(waiting_, "10GiB"), &second).ok());
  EXPECT_EQ(second.spec().SerializeAsString(), first.spec().SerializeAsString());
  EXPECT_EQ(CountUpdates(waiting_), 1);
}

TEST_F(UpdateJobTest, RunningWorkerIsToldItsNewMemorySettings) {
  v1::Job job;
  ASSERT_TRUE(Update(Budget(running_, "10GiB"), &job).ok());
  EXPECT_THAT(ToldMemory(running_, "10GiB"), HasSubstr("10GiB"));
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  ASSERT_TRUE(Update(Budget(running_, "9GiB"), &job).ok());
  EXPECT_THAT(ToldMemory(running_, "9GiB"), HasSubstr("9GiB"));
  LetGo(running_);
  EXPECT_EQ(server_->WaitTerminal(running_.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(UpdateJobTest, PriorityAloneDoesNotReachTheWorker) {
  v1::UpdateJobRequest request;
  request.mutable_job()->set_name(running_.name());
  request.mutable_job()->mutable_spec()->set_priority(3);
  request.mutable_update_mask()->add_paths("priority");
  v1::Job job;
  ASSERT_TRUE(Update(request, &job).ok());
  LetGo(running_);
  server_->WaitTerminal(running_.name());
  EXPECT_FALSE(std::ifstream(running_.output_directory() + "/fake-memory").good());
}

TEST_F(UpdateJobTest, StaleEtagIsRefusedAndAFreshOneTaken) {
  v1::UpdateJobRequest request = Budget(waiting_, "10GiB");
  request.mutable_job()->set_etag("v0");
  v1::Job job;
  const grpc::Status stale = Update(request, &job);
  EXPECT_EQ(stale.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(ErrorReason(stale), "ETAG_MISMATCH");
  EXPECT_EQ(server_->Get(waiting_.name()).spec().memory().vram_budget(), "");
  // The reason a job waits is written once; then its etag stays.
  for (int i = 0; i < 100; ++i) {
    request.mutable_job()->set_etag(server_->Get(waiting_.name()).etag());
    if (Update(request, &job).ok()) break;
  }
  EXPECT_EQ(job.spec().memory().vram_budget(), "10GiB");
}

TEST_F(UpdateJobTest, EveryViolationIsReportedAtOnce) {
  v1::Job invalid = server_->MustCreate("later", "steps=1");
  v1::UpdateJobRequest request = Budget(invalid, "10GiB");
  for (const char* path : {"training.max_steps", "state", "memory.ring_sise", "labels"}) {
    request.mutable_update_mask()->add_paths(path);
  }
  for (int i = 0; i < 40; ++i) {
    (*request.mutable_job()->mutable_spec()->mutable_labels())[absl::StrCat("k", i)] =
        absl::StrCat(i);
  }
  v1::Job job;
  const grpc::Status status = Update(request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ErrorReason(status), "SPEC_INVALID");
  std::vector<std::string> fields;
  const google::rpc::BadRequest details = ErrorViolations(status);
  for (const auto& violation : details.field_violations()) {
    fields.push_back(violation.field());
  }
  EXPECT_THAT(fields,
              ::testing::ElementsAre("training.max_steps", "state", "memory.ring_sise", "labels"));
  EXPECT_EQ(server_->Get(invalid.name()).spec().memory().vram_budget(), "");
}

TEST_F(UpdateJobTest, EndedJobChangesItsLabelsOnly) {
  LetGo(running_);
  server_->WaitTerminal(running_.name());
  v1::Job job;
  const grpc::Status refused = Update(Budget(running_, "10GiB"), &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(refused), "INVALID_STATE");
  v1::UpdateJobRequest request;
  request.mutable_job()->set_name(running_.name());
  (*request.mutable_job()->mutable_spec()->mutable_labels())["kept"] = "yes";
  request.mutable_update_mask()->add_paths("labels");
  const grpc::Status labelled = Update(request, &job);
  ASSERT_TRUE(labelled.ok()) << labelled.error_message();
  EXPECT_EQ(job.spec().labels().at("kept"), "yes");
}

TEST_F(UpdateJobTest, UnknownJobIsNotFound) {
  v1::Job job, nobody;
  nobody.set_name("jobs/nobody");
  EXPECT_EQ(Update(Budget(nobody, "1GiB"), &job).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(UpdateJobTest, HoldsAndDeadlinesChangeWhileAJobWaits) {
  v1::UpdateJobRequest request;
  request.mutable_job()->set_name(waiting_.name());
  request.mutable_job()->mutable_spec()->set_hold(true);
  request.mutable_job()->mutable_spec()->set_deadline("2h");
  request.mutable_update_mask()->add_paths("hold");
  request.mutable_update_mask()->add_paths("spec.deadline");
  v1::Job job;
  const grpc::Status status = Update(request, &job);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(job.spec().hold());
  EXPECT_EQ(job.deadline_time().seconds() - job.create_time().seconds(), 2 * 3600);
  EXPECT_TRUE(server_->daemon().store().GetJob(waiting_.name().substr(5))->held);
  // What the request leaves out goes back to its default.
  request.mutable_job()->mutable_spec()->clear_hold();
  request.mutable_job()->mutable_spec()->clear_deadline();
  ASSERT_TRUE(Update(request, &job).ok());
  EXPECT_FALSE(job.spec().hold());
  EXPECT_FALSE(job.has_deadline_time());
  request.mutable_job()->mutable_spec()->set_deadline("yesterday");
  const grpc::Status bad = Update(request, &job);
  ASSERT_EQ(ErrorViolations(bad).field_violations_size(), 1);
  EXPECT_EQ(ErrorViolations(bad).field_violations(0).field(), "deadline");
}

TEST_F(UpdateJobTest, EtagStaysWhileAJobOnlyMakesProgress) {
  const v1::Job before = server_->Get(running_.name());
  v1::UpdateJobRequest request = Budget(running_, "10GiB");
  request.mutable_job()->set_etag(before.etag());
  v1::Job job;
  ASSERT_TRUE(Update(request, &job).ok());
  EXPECT_NE(job.etag(), before.etag());
  EXPECT_EQ(ErrorReason(Update(request, &job)), "ETAG_MISMATCH");
}

TEST_F(UpdateJobTest, WhatOnlyARunningJobCanDoIsRefusedToOthers) {
  grpc::ClientContext checkpoint_context, prompts_context;
  v1::CheckpointJobRequest checkpoint;
  checkpoint.set_name(waiting_.name());
  v1::Job job;
  const grpc::Status waits =
      server_->training().CheckpointJob(&checkpoint_context, checkpoint, &job);
  EXPECT_EQ(waits.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(waits), "INVALID_STATE");
  v1::SampleJobRequest sample;
  sample.set_name(running_.name());
  const grpc::Status nothing = server_->training().SampleJob(&prompts_context, sample, &job);
  EXPECT_EQ(nothing.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(nothing), "NO_PROMPTS");
}

}  // namespace
}  // namespace blockswap::server
