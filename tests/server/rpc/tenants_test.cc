// SPDX-License-Identifier: Apache-2.0
// Row 38 of the fault list: one tenant learns nothing of another's jobs, by no name and no token.
#include "server/rpc/tenants.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using Context = grpc::ClientContext;

class TenantsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = std::make_unique<TestServer>(directory_.path());
    for (const char* tenant : {"red", "blue"}) tokens_[tenant] = MakeToken(tenant, "submitter");
    tokens_["all"] = MakeToken("*", "viewer");
  }

  std::string MakeToken(const std::string& tenant, const std::string& role) {
    Context context;
    v1::CreateTokenRequest request;
    request.set_display_name(absl::StrCat(role, tenant));
    request.set_role(role);
    request.set_tenant(tenant);
    v1::CreateTokenResponse response;
    EXPECT_TRUE(server_->admin().CreateToken(&context, request, &response).ok());
    return response.secret();
  }
  std::unique_ptr<Context> As(const std::string& who) {
    auto context = std::make_unique<Context>();
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    context->AddMetadata("authorization", absl::StrCat("Bearer ", tokens_[who]));
    return context;
  }
  v1::Job Create(const std::string& who, const std::string& id,
                 const std::string& request_id = "") {
    v1::CreateJobRequest request = server_->Request(id, "steps=2 hold_at=1");
    request.set_job_id(id);
    request.set_request_id(request_id);
    v1::Job job;
    const grpc::Status status = server_->training().CreateJob(As(who).get(), request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  v1::ListJobsResponse List(const std::string& who, const std::string& page_token = "",
                            int size = 0, grpc::Status* status = nullptr) {
    v1::ListJobsRequest request;
    request.set_page_size(size);
    request.set_page_token(page_token);
    v1::ListJobsResponse response;
    const grpc::Status answer = server_->training().ListJobs(As(who).get(), request, &response);
    if (status != nullptr) *status = answer;
    return response;
  }
  // Every call that names a job, as `who`, about the job `id`.
  std::map<std::string, grpc::Status> CallsAbout(const std::string& who, const std::string& id);

  const TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
  std::map<std::string, std::string> tokens_;
};

std::map<std::string, grpc::Status> TenantsTest::CallsAbout(const std::string& who,
                                                            const std::string& id) {
  const std::string name = absl::StrCat("jobs/", id);
  v1::TrainingService::Stub& stub = server_->training();
  std::map<std::string, grpc::Status> calls;
  const auto by_name = [&](const char* call, auto method, auto request, auto response) {
    request.set_name(name);
    calls[call] = (stub.*method)(As(who).get(), request, &response);
  };
  using Stub = v1::TrainingService::Stub;
  by_name("GetJob", &Stub::GetJob, v1::GetJobRequest(), v1::Job());
  by_name("CancelJob", &Stub::CancelJob, v1::CancelJobRequest(), v1::Job());
  by_name("SuspendJob", &Stub::SuspendJob, v1::SuspendJobRequest(), v1::Job());
  by_name("ResumeJob", &Stub::ResumeJob, v1::ResumeJobRequest(), v1::Job());
  by_name("RetryJob", &Stub::RetryJob, v1::RetryJobRequest(), v1::Job());
  by_name("CheckpointJob", &Stub::CheckpointJob, v1::CheckpointJobRequest(), v1::Job());
  by_name("SampleJob", &Stub::SampleJob, v1::SampleJobRequest(), v1::Job());
  by_name("DeleteJob", &Stub::DeleteJob, v1::DeleteJobRequest(), google::protobuf::Empty());
  by_name("ListMetricPoints", &Stub::ListMetricPoints, v1::ListMetricPointsRequest(),
          v1::ListMetricPointsResponse());
  const auto by_parent = [&](const char* call, auto method, auto request, auto response) {
    request.set_parent(name);
    calls[call] = (stub.*method)(As(who).get(), request, &response);
  };
  by_parent("ListJobEvents", &Stub::ListJobEvents, v1::ListJobEventsRequest(),
            v1::ListJobEventsResponse());
  by_parent("ListAttempts", &Stub::ListAttempts, v1::ListAttemptsRequest(),
            v1::ListAttemptsResponse());
  by_parent("ListCheckpoints", &Stub::ListCheckpoints, v1::ListCheckpointsRequest(),
            v1::ListCheckpointsResponse());
  v1::GetCheckpointRequest checkpoint;
  checkpoint.set_name(absl::StrCat(name, "/checkpoints/1"));
  v1::Checkpoint found;
  calls["GetCheckpoint"] = stub.GetCheckpoint(As(who).get(), checkpoint, &found);
  v1::DeleteCheckpointRequest removal;
  removal.set_name(absl::StrCat(name, "/checkpoints/1"));
  google::protobuf::Empty empty;
  calls["DeleteCheckpoint"] = stub.DeleteCheckpoint(As(who).get(), removal, &empty);
  v1::UpdateJobRequest update;
  update.mutable_job()->set_name(name);
  update.mutable_update_mask()->add_paths("priority");
  v1::Job job;
  calls["UpdateJob"] = stub.UpdateJob(As(who).get(), update, &job);
  v1::WatchJobsRequest watch;
  watch.set_job(name);
  const auto watching = As(who);
  auto events = stub.WatchJobs(watching.get(), watch);
  v1::JobEvent event;
  if (events->Read(&event)) watching->TryCancel();
  calls["WatchJobs"] = events->Finish();
  v1::StreamJobLogsRequest log;
  log.set_name(name);
  const auto reading = As(who);
  auto chunks = stub.StreamJobLogs(reading.get(), log);
  v1::LogChunk chunk;
  while (chunks->Read(&chunk)) {
  }
  calls["StreamJobLogs"] = chunks->Finish();
  return calls;
}

TEST_F(TenantsTest, AnothersJobLooksLikeOneThatIsNotThere) {
  Create("red", "secret");
  const auto others = CallsAbout("blue", "secret");
  const auto missing = CallsAbout("blue", "absent");
  ASSERT_EQ(others.size(), 17u);
  for (const auto& [call, status] : others) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << call;
    EXPECT_EQ(ErrorReason(status), "JOB_NOT_FOUND") << call;
    // Word for word.
    EXPECT_EQ(absl::StrCat(status.error_message()),
              absl::StrReplaceAll(missing.at(call).error_message(), {{"absent", "secret"}}))
        << call;
  }
  v1::Job job;
  v1::GetJobRequest request;
  request.set_name("jobs/secret");
  ASSERT_TRUE(server_->training().GetJob(As("red").get(), request, &job).ok());
  EXPECT_EQ(job.tenant(), "red");
}

TEST_F(TenantsTest, ListsHoldTheTenantsOwnJobsAndAllForThoseWhoSeeAll) {
  Create("red", "r1");
  Create("blue", "b1");
  server_->MustCreate("local", "{}");
  ASSERT_EQ(List("red").jobs_size(), 1);
  EXPECT_EQ(List("red").jobs(0).name(), "jobs/r1");
  ASSERT_EQ(List("blue").jobs_size(), 1);
  EXPECT_EQ(List("blue").jobs(0).name(), "jobs/b1");
  EXPECT_EQ(List("all").jobs_size(), 3);
}

TEST_F(TenantsTest, PageTokenOfAnotherTenantIsWorthNothing) {
  for (int i = 0; i < 3; ++i) Create("red", absl::StrCat("r", i));
  Create("blue", "b0");
  const std::string token = List("red", "", 1).next_page_token();
  ASSERT_FALSE(token.empty());
  grpc::Status status;
  EXPECT_EQ(List("blue", token, 1, &status).jobs_size(), 0);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(List("red", token, 1).jobs_size(), 1);
}

TEST_F(TenantsTest, WatchesTellOfTheTenantsOwnJobsAndResumeTokensOpenNoOthers) {
  const auto first_of = [this](const std::string& who, const std::string& token,
                               grpc::Status* status) {
    v1::WatchJobsRequest request;
    request.set_resume_token(token);
    request.set_include_snapshot(token.empty());
    const auto context = As(who);
    auto stream = server_->training().WatchJobs(context.get(), request);
    std::vector<v1::JobEvent> events;
    v1::JobEvent event;
    while (stream->Read(&event)) {
      events.push_back(event);
      if (event.type() == v1::JobEvent::TYPE_SNAPSHOT_END) context->TryCancel();
    }
    *status = stream->Finish();
    return events;
  };
  Create("red", "r1");
  Create("blue", "b1");
  grpc::Status status;
  const auto red = first_of("red", "", &status);
  ASSERT_EQ(red.size(), 2u);
  EXPECT_EQ(red[0].job(), "jobs/r1");
  const auto blue = first_of("blue", red.back().resume_token(), &status);
  EXPECT_TRUE(blue.empty());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
}

TEST_F(TenantsTest, RequestIdOfAnotherTenantAnswersNoJobOfIts) {
  EXPECT_EQ(Create("red", "r1", "the-same").name(), "jobs/r1");
  EXPECT_EQ(Create("blue", "b1", "the-same").name(), "jobs/b1");
  EXPECT_EQ(Create("red", "r1", "the-same").name(), "jobs/r1");
}

TEST_F(TenantsTest, OutputsLieBelowTheTenantsOwnDirectory) {
  EXPECT_EQ(Create("red", "r1").output_directory(), directory_.path() + "/outputs/@red/r1");
  EXPECT_EQ(server_->MustCreate("local", "{}").output_directory().find('@'), std::string::npos);
}

TEST_F(TenantsTest, OperatorsSeeAndStopTheJobsOfAll) {
  Create("red", "r1");
  tokens_["op"] = MakeToken("ops", "operator");
  EXPECT_EQ(List("op").jobs_size(), 1);
  v1::CancelJobRequest request;
  request.set_name("jobs/r1");
  v1::Job job;
  EXPECT_TRUE(server_->training().CancelJob(As("op").get(), request, &job).ok());
}

// Row 45 of the fault list.
TEST_F(TenantsTest, RevokedTokenEndsItsOpenStreams) {
  Create("red", "r1");
  v1::WatchJobsRequest request;
  request.set_include_snapshot(true);
  const auto context = As("red");
  auto stream = server_->training().WatchJobs(context.get(), request);
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));
  v1::RevokeTokenRequest revoke;
  revoke.set_name("submitterred");
  v1::Token token;
  Context admin;
  ASSERT_TRUE(server_->admin().RevokeToken(&admin, revoke, &token).ok());
  while (stream->Read(&event)) {
  }
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
  EXPECT_EQ(ErrorReason(status), "TOKEN_INVALID");
}

TEST_F(TenantsTest, StreamsOfATenantAreCountedAndGivenBack) {
  server_.reset();
  server_ = std::make_unique<TestServer>(directory_.path(),
                                         [](ServerConfig& config) { config.tenant_streams = 1; });
  v1::WatchJobsRequest request;
  request.set_include_snapshot(true);
  v1::JobEvent event;
  const auto first = As("red");
  auto open = server_->training().WatchJobs(first.get(), request);
  ASSERT_TRUE(open->Read(&event));
  const auto second = As("red");
  auto refused = server_->training().WatchJobs(second.get(), request);
  EXPECT_FALSE(refused->Read(&event));
  EXPECT_EQ(ErrorReason(refused->Finish()), "TOO_MANY_STREAMS");
  const auto other = As("blue");
  auto of_other = server_->training().WatchJobs(other.get(), request);
  EXPECT_TRUE(of_other->Read(&event));
  other->TryCancel();
  of_other->Finish();
  first->TryCancel();
  open->Finish();
  // The end of the first is still on its way to the server for a moment.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  bool taken = false;
  while (!taken && std::chrono::steady_clock::now() < deadline) {
    const auto third = As("red");
    auto again = server_->training().WatchJobs(third.get(), request);
    taken = again->Read(&event);
    third->TryCancel();
    again->Finish();
  }
  EXPECT_TRUE(taken);
}

}  // namespace
}  // namespace blockswap::server
