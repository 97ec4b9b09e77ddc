// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/training_service.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

class TrainingServiceTest : public ::testing::Test {
 protected:
  void Start() { server_ = std::make_unique<TestServer>(directory_.path()); }
  void Restart() {
    server_.reset();
    Start();
  }
  void SetUp() override {
    Start();
    // Holds the only device, so that other jobs stay where they are.
    blocker_ = server_->MustCreate("blocker", "steps=2 hold_at=1");
    server_->WaitState(blocker_.name(), v1::JOB_STATE_RUNNING);
  }
  grpc::Status List(const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
    grpc::ClientContext context;
    return server_->training().ListJobs(&context, request, response);
  }
  int64_t CountJobs() {
    v1::ListJobsRequest request;
    request.set_page_size(1000);
    v1::ListJobsResponse response;
    EXPECT_TRUE(List(request, &response).ok());
    return response.jobs_size();
  }

  TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
  v1::Job blocker_;
};

// F050: one job for one request id, also when the first reply was lost, and after a restart.
TEST_F(TrainingServiceTest, RepeatedRequestIdAnswersTheSameJob) {
  v1::CreateJobRequest request = server_->Request("digits", "steps=1");
  request.set_request_id("6fa459ea-ee8a-4ca4-894e-db77e160355e");
  v1::Job first, second, third;
  ASSERT_TRUE(server_->Create(request, &first).ok());
  ASSERT_TRUE(server_->Create(request, &second).ok());
  EXPECT_EQ(second.uid(), first.uid());
  Restart();
  ASSERT_TRUE(server_->Create(request, &third).ok());
  EXPECT_EQ(third.uid(), first.uid());
  EXPECT_EQ(CountJobs(), 2);
}

// F050: a client that gave up after a millisecond and asks again.
TEST_F(TrainingServiceTest, RequestWhoseReplyWasLostIsNotDoneTwice) {
  v1::CreateJobRequest request = server_->Request("digits", "steps=1");
  request.set_request_id("7fa459ea-ee8a-4ca4-894e-db77e160355e");
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(1));
    v1::Job ignored;
    server_->training().CreateJob(&context, request, &ignored).error_code();
  }
  v1::Job job;
  ASSERT_TRUE(server_->Create(request, &job).ok());
  EXPECT_EQ(CountJobs(), 2);
}

// F050: another body under the same id is refused.
TEST_F(TrainingServiceTest, RequestIdWithAnotherBodyIsRefused) {
  v1::CreateJobRequest request = server_->Request("digits", "steps=1");
  request.set_request_id("8fa459ea-ee8a-4ca4-894e-db77e160355e");
  v1::Job job;
  ASSERT_TRUE(server_->Create(request, &job).ok());
  request.mutable_spec()->mutable_network()->set_rank(8);
  for (int round = 0; round < 2; ++round) {
    const grpc::Status status = server_->Create(request, &job);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
    EXPECT_EQ(ErrorReason(status), "REQUEST_ID_REUSED");
    Restart();
  }
  // A new id is a new job.
  request.set_request_id("9fa459ea-ee8a-4ca4-894e-db77e160355e");
  ASSERT_TRUE(server_->Create(request, &job).ok());
  EXPECT_EQ(CountJobs(), 3);
}

// F050: map entries may be serialised in any order; the request is the same.
TEST_F(TrainingServiceTest, RequestHashDoesNotDependOnTheOrderOfLabels) {
  v1::CreateJobRequest request = server_->Request("digits", "steps=1");
  request.set_request_id("afa459ea-ee8a-4ca4-894e-db77e160355e");
  v1::CreateJobRequest other = request;
  for (int i = 0; i < 20; ++i)
    (*request.mutable_spec()->mutable_labels())[absl::StrCat("k", i)] = std::string("v");
  for (int i = 19; i >= 0; --i)
    (*other.mutable_spec()->mutable_labels())[absl::StrCat("k", i)] = std::string("v");
  v1::Job first, second;
  ASSERT_TRUE(server_->Create(request, &first).ok());
  ASSERT_TRUE(server_->Create(other, &second).ok());
  EXPECT_EQ(first.uid(), second.uid());
}

TEST_F(TrainingServiceTest, FiftyEqualRequestsAtOnceMakeOneJob) {
  v1::CreateJobRequest request = server_->Request("digits", "steps=1");
  request.set_request_id("bfa459ea-ee8a-4ca4-894e-db77e160355e");
  std::vector<v1::Job> jobs(50);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (v1::Job& job : jobs) {
    threads.emplace_back([&] {
      if (!server_->Create(request, &job).ok()) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  std::set<std::string> uids;
  for (const v1::Job& job : jobs) uids.insert(job.uid());
  EXPECT_EQ(uids.size(), 1u);
  EXPECT_EQ(CountJobs(), 2);
}

TEST_F(TrainingServiceTest, ChosenIdIsKeptAndTakenOnce) {
  v1::CreateJobRequest request = server_->Request("digits", "steps=1");
  request.set_job_id("my-job-1");
  v1::Job job;
  ASSERT_TRUE(server_->Create(request, &job).ok());
  EXPECT_EQ(job.name(), "jobs/my-job-1");
  EXPECT_TRUE(absl::EndsWith(job.output_directory(), "/my-job-1"));
  const grpc::Status again = server_->Create(request, &job);
  EXPECT_EQ(again.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ErrorReason(again), "JOB_EXISTS");
  for (const char* bad : {"My-Job", "-x", "x-", "1x", "a/b", "..", "a b"}) {
    request.set_job_id(bad);
    const grpc::Status status = server_->Create(request, &job);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << bad;
    ASSERT_EQ(ErrorViolations(status).field_violations_size(), 1) << bad;
    EXPECT_EQ(ErrorViolations(status).field_violations(0).field(), "job_id");
  }
}

TEST_F(TrainingServiceTest, AllViolationsComeInOneAnswerWithTheirPaths) {
  v1::Job job;
  const grpc::Status status = server_->Create(server_->Request("invalid", ""), &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ErrorReason(status), "SPEC_INVALID");
  const google::rpc::BadRequest violations = ErrorViolations(status);
  ASSERT_EQ(violations.field_violations_size(), 2);
  EXPECT_EQ(violations.field_violations(0).field(), "model.weights");
  EXPECT_EQ(violations.field_violations(1).field(), "network.rank");
  EXPECT_TRUE(absl::StrContains(status.error_message(), "network.rank"));
  EXPECT_EQ(CountJobs(), 1);
}

TEST_F(TrainingServiceTest, OutsidePathsAndImpossiblePlansHaveTheirOwnCodes) {
  v1::Job job;
  const grpc::Status outside = server_->Create(server_->Request("outside", ""), &job);
  EXPECT_EQ(outside.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(ErrorReason(outside), "PATH_NOT_ALLOWED");
  const grpc::Status huge = server_->Create(server_->Request("huge", ""), &job);
  EXPECT_EQ(huge.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(huge), "WILL_NOT_FIT");
}

TEST_F(TrainingServiceTest, ValidateOnlyStoresNothing) {
  v1::CreateJobRequest request = server_->Request("digits", "steps=1");
  request.set_validate_only(true);
  v1::Job job;
  ASSERT_TRUE(server_->Create(request, &job).ok());
  EXPECT_EQ(job.plan().blocks_to_swap(), 2);
  EXPECT_EQ(CountJobs(), 1);
}

TEST_F(TrainingServiceTest, PlanJobAnswersTheDevice) {
  grpc::ClientContext context;
  v1::PlanJobRequest request;
  request.mutable_spec()->set_name("digits");
  v1::PlanJobResponse response;
  ASSERT_TRUE(server_->training().PlanJob(&context, request, &response).ok());
  EXPECT_EQ(response.device(), "devices/host");
  EXPECT_EQ(response.total_steps(), 3);
  EXPECT_EQ(response.plan().num_blocks(), 8);
  ASSERT_EQ(response.alternatives_size(), 1);
  EXPECT_EQ(response.alternatives(0).vram_budget_bytes(), response.plan().device_bytes() + 1);
}

TEST_F(TrainingServiceTest, PlanJobForAKnownCardNamesTheCard) {
  grpc::ClientContext context;
  v1::PlanJobRequest request;
  request.mutable_spec()->set_name("digits");
  request.set_device_profile("rtx4090");
  v1::PlanJobResponse response;
  ASSERT_TRUE(server_->training().PlanJob(&context, request, &response).ok());
  EXPECT_EQ(response.device(), "device_profiles/rtx4090");
}

TEST_F(TrainingServiceTest, PagesCoverEveryJobOnceAndTokensAreBoundToTheFilter) {
  for (int i = 0; i < 7; ++i) server_->MustCreate(absl::StrCat("page", i), "steps=1");
  v1::ListJobsRequest request;
  request.set_page_size(3);
  request.set_filter("name:page");
  std::vector<std::string> names;
  std::string token;
  do {
    request.set_page_token(token);
    v1::ListJobsResponse response;
    ASSERT_TRUE(List(request, &response).ok());
    EXPECT_LE(response.jobs_size(), 3);
    for (const v1::Job& job : response.jobs()) names.push_back(job.name());
    if (!response.next_page_token().empty()) token = response.next_page_token();
    if (response.next_page_token().empty()) break;
  } while (true);
  EXPECT_EQ(names.size(), 7u);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 7u);
  EXPECT_TRUE(absl::StartsWith(names.front(), "jobs/page6"));  // newest first

  v1::ListJobsResponse response;
  request.set_page_token(token);
  request.set_filter("name:other");
  EXPECT_EQ(List(request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_filter("name:page");
  request.set_page_token(token + "x");
  EXPECT_EQ(List(request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_page_token("");
  request.set_page_size(-1);
  EXPECT_EQ(List(request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(TrainingServiceTest, UnknownJobIsNotFound) {
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name("jobs/nobody");
  v1::Job job;
  const grpc::Status status = server_->training().GetJob(&context, request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ErrorReason(status), "JOB_NOT_FOUND");
}

TEST_F(TrainingServiceTest, CancellingATerminalJobAnswersItUnchanged) {
  const v1::Job job = server_->MustCreate("digits", "steps=1");
  v1::CancelJobRequest request;
  request.set_name(job.name());
  request.set_reason("no more wanted");
  v1::Job first, second;
  grpc::ClientContext context, again;
  ASSERT_TRUE(server_->training().CancelJob(&context, request, &first).ok());
  EXPECT_EQ(first.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(first.state_message(), "no more wanted");
  ASSERT_TRUE(server_->training().CancelJob(&again, request, &second).ok());
  EXPECT_EQ(second.etag(), first.etag());
}

TEST_F(TrainingServiceTest, SuspendedJobWaitsUntilItIsResumed) {
  const v1::Job job = server_->MustCreate("digits", "steps=1");
  v1::SuspendJobRequest suspend;
  suspend.set_name(job.name());
  v1::Job suspended;
  grpc::ClientContext context;
  ASSERT_TRUE(server_->training().SuspendJob(&context, suspend, &suspended).ok());
  EXPECT_EQ(suspended.state(), v1::JOB_STATE_SUSPENDED);
  LetGo(blocker_);
  server_->WaitTerminal(blocker_.name());
  EXPECT_EQ(server_->Get(job.name()).state(), v1::JOB_STATE_SUSPENDED);
  v1::ResumeJobRequest resume;
  resume.set_name(job.name());
  grpc::ClientContext resume_context;
  ASSERT_TRUE(server_->training().ResumeJob(&resume_context, resume, &suspended).ok());
  EXPECT_EQ(server_->WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(TrainingServiceTest, MetricPointsHoldTheLossCurve) {
  const v1::Job job = server_->MustCreate("digits", "steps=8");
  LetGo(blocker_);
  server_->WaitTerminal(job.name());
  grpc::ClientContext context;
  v1::ListMetricPointsRequest request;
  request.set_name(job.name());
  request.add_series("loss");
  v1::ListMetricPointsResponse response;
  ASSERT_TRUE(server_->training().ListMetricPoints(&context, request, &response).ok());
  ASSERT_EQ(response.series_size(), 1);
  ASSERT_EQ(response.series(0).points_size(), 8);
  EXPECT_DOUBLE_EQ(response.series(0).points(3).value(), 0.25);
  request.set_series(0, "weight");
  grpc::ClientContext bad;
  EXPECT_EQ(server_->training().ListMetricPoints(&bad, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(TrainingServiceTest, MetricPointsHoldEachStepsOwnBytesAndStall) {
  // The second attempt counts from zero again, after step 2. The first is held until its steps
  // have arrived: a kill would take along what it had only queued.
  const v1::Job job =
      server_->MustCreate("digits", "steps=6 save=2 hold_at=4 crash_at=4 crash_attempts=1");
  v1::ListMetricPointsRequest request;
  request.set_name(job.name());
  request.add_series("h2d_bytes");
  request.add_series("stall_seconds");
  v1::ListMetricPointsResponse response;
  const auto read_points = [&] {
    grpc::ClientContext context;
    return server_->training().ListMetricPoints(&context, request, &response).ok();
  };
  LetGo(blocker_);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (read_points() && absl::Now() < deadline &&
         (response.series_size() == 0 || response.series(0).points_size() < 3)) {
  }
  LetGo(job);
  ASSERT_EQ(server_->WaitTerminal(job.name()).attempt(), 2);
  ASSERT_TRUE(read_points());
  ASSERT_EQ(response.series_size(), 2);
  ASSERT_EQ(response.series(0).points_size(), 6);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(response.series(0).points(i).value(), 1000) << i;
    EXPECT_DOUBLE_EQ(response.series(1).points(i).value(), 0.75) << i;
  }
}

TEST_F(TrainingServiceTest, TooLargeRequestIsRefusedByItsLimit) {
  v1::CreateJobRequest request = server_->Request("digits", "");
  request.mutable_spec()->mutable_model()->set_weights(std::string(300 << 10, 'w'));
  v1::Job job;
  grpc::Status status = server_->Create(request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "262144"));
  request.mutable_spec()->mutable_model()->set_weights(std::string(5 << 20, 'w'));
  status = server_->Create(request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(TrainingServiceTest, ServerInfoAndDevicesTellWhatThereIs) {
  grpc::ClientContext context, list_context;
  v1::ServerInfo info;
  ASSERT_TRUE(server_->admin().GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_TRUE(info.accepting_jobs());
  EXPECT_EQ(info.limits().max_message_bytes(), 4 << 20);
  ASSERT_EQ(info.architectures_size(), 1);
  v1::ListDevicesResponse devices;
  ASSERT_TRUE(server_->admin().ListDevices(&list_context, v1::ListDevicesRequest(), &devices).ok());
  ASSERT_EQ(devices.devices_size(), 1);
  EXPECT_EQ(devices.devices(0).name(), "devices/host");
  EXPECT_EQ(devices.devices(0).total_bytes(), int64_t{1} << 30);
}

}  // namespace
}  // namespace blockswap::server
