// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/server_client.h"

#include <cstdlib>
#include <filesystem>
#include <set>

#include "client/cpp/errors.h"
#include "client/cpp/request_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/fake_service.h"

namespace blockswap::client {
namespace {

using ::testing::ElementsAre;
using testing::FakeService;
using ::testing::MatchesRegex;

v1::JobEvent Event(v1::JobEvent::Type type, const std::string& token) {
  v1::JobEvent event;
  event.set_type(type);
  event.set_job("jobs/a");
  event.set_resume_token(token);
  return event;
}

v1::JobEvent End(v1::JobEvent::EndReason reason) {
  v1::JobEvent event = Event(v1::JobEvent::TYPE_END, "");
  event.set_end_reason(reason);
  return event;
}

class ServerClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/blockswap-client-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    service_ = std::make_unique<FakeService>(directory_);
    auto client = ServerClient::Connect(service_->target());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void TearDown() override {
    client_.reset();
    service_.reset();
    std::filesystem::remove_all(directory_);
  }

  // The types and tokens of what a watch of jobs/a delivered.
  absl::Status Watch(std::vector<std::string>* tokens) {
    v1::WatchJobsRequest request;
    request.set_job("jobs/a");
    request.set_include_snapshot(true);
    return client_->WatchJobs(request, options_, [tokens](const v1::JobEvent& event) {
      tokens->push_back(event.resume_token());
      return true;
    });
  }

  std::string directory_;
  std::unique_ptr<FakeService> service_;
  std::unique_ptr<ServerClient> client_;
  StreamOptions options_;
};

TEST_F(ServerClientTest, RetriesWithTheSameRequestWhileTheServerIsUnavailable) {
  service_->failures = {FakeService::Error(grpc::StatusCode::UNAVAILABLE, "starting", "STARTING"),
                        grpc::Status(grpc::StatusCode::UNAVAILABLE, "again")};
  v1::CreateJobRequest request;
  request.set_request_id(NewRequestId());
  ASSERT_TRUE(client_->CreateJob(request).ok());
  ASSERT_EQ(service_->create_requests.size(), 3u);
  std::set<std::string> ids;
  for (const auto& sent : service_->create_requests) ids.insert(sent.request_id());
  EXPECT_THAT(ids, ElementsAre(request.request_id()));
}

TEST_F(ServerClientTest, NeverRetriesWhatTheServerRefused) {
  service_->failures = {
      FakeService::Error(grpc::StatusCode::INVALID_ARGUMENT, "2 violations", "SPEC_INVALID",
                         {{"spec.name", "is required"}, {"spec.priority", "too high"}})};
  v1::CreateJobRequest request;
  request.set_request_id(NewRequestId());
  const absl::Status status = client_->CreateJob(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(service_->create_requests.size(), 1u);
  const ErrorDetails details = DetailsOf(status);
  EXPECT_EQ(details.reason, "SPEC_INVALID");
  ASSERT_EQ(details.violations.size(), 2u);
  EXPECT_EQ(details.violations[0].field, "spec.name");
  EXPECT_EQ(details.violations[1].description, "too high");
}

TEST_F(ServerClientTest, WantsARequestIdAndASocket) {
  EXPECT_EQ(client_->CreateJob({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ServerClient::Connect("localhost:80").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ServerClient::Connect("unix:" + std::string(200, '/')).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ServerClient::Connect("/run/x.sock").ok());
}

TEST_F(ServerClientTest, ResumesACutWatchFromItsLastToken) {
  service_->watches.push_back(
      {{Event(v1::JobEvent::TYPE_SNAPSHOT, "t1"), Event(v1::JobEvent::TYPE_BOOKMARK, "t2")},
       grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut")});
  service_->watches.push_back({{Event(v1::JobEvent::TYPE_STATE_CHANGED, "t3")}, grpc::Status::OK});
  service_->watches.push_back({{End(v1::JobEvent::END_REASON_SERVER_SHUTDOWN)}});
  service_->watches.push_back(
      {{End(v1::JobEvent::END_REASON_SLOW_CONSUMER)},
       FakeService::Error(grpc::StatusCode::RESOURCE_EXHAUSTED, "slow", "SLOW_CONSUMER")});
  service_->watches.push_back({{Event(v1::JobEvent::TYPE_STATE_CHANGED, "t4"),
                                End(v1::JobEvent::END_REASON_JOB_TERMINAL)}});
  std::vector<std::string> tokens;
  EXPECT_TRUE(Watch(&tokens).ok());
  EXPECT_THAT(tokens, ElementsAre("t1", "t3", "t4"));
  std::vector<std::string> asked;
  for (const auto& request : service_->watch_requests) asked.push_back(request.resume_token());
  EXPECT_THAT(asked, ElementsAre("", "t2", "t3", "t3", "t3"));
  EXPECT_TRUE(service_->watch_requests[0].include_snapshot());
  EXPECT_FALSE(service_->watch_requests[1].include_snapshot());
}

TEST_F(ServerClientTest, TakesAFreshSnapshotWhenTheTokenIsTooOld) {
  service_->watches.push_back({{Event(v1::JobEvent::TYPE_SNAPSHOT, "t1")}, grpc::Status::OK});
  service_->watches.push_back(
      {{}, FakeService::Error(grpc::StatusCode::OUT_OF_RANGE, "too old", "RESUME_TOKEN_EXPIRED")});
  service_->watches.push_back(
      {{Event(v1::JobEvent::TYPE_SNAPSHOT, "t9"), End(v1::JobEvent::END_REASON_JOB_TERMINAL)}});
  std::vector<std::string> tokens;
  EXPECT_TRUE(Watch(&tokens).ok());
  EXPECT_THAT(tokens, ElementsAre("t1", "t9"));
  EXPECT_EQ(service_->watch_requests[2].resume_token(), "");
  EXPECT_TRUE(service_->watch_requests[2].include_snapshot());
}

TEST_F(ServerClientTest, ACutStreamIsNeverSuccess) {
  options_.patience = absl::Milliseconds(100);
  for (int i = 0; i < 20; ++i) service_->watches.push_back({{}, grpc::Status::OK});
  std::vector<std::string> tokens;
  EXPECT_EQ(Watch(&tokens).code(), absl::StatusCode::kUnavailable);
}

TEST_F(ServerClientTest, EndsAtTheDeadline) {
  options_.deadline = absl::Now() + absl::Milliseconds(100);
  std::vector<std::string> tokens;
  EXPECT_EQ(Watch(&tokens).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ServerClientTest, CancelEndsAStreamAndEveryLaterCall) {
  std::thread canceller([this] {
    service_->AwaitWatches(1);
    client_->Cancel();
  });
  std::vector<std::string> tokens;
  EXPECT_EQ(Watch(&tokens).code(), absl::StatusCode::kCancelled);
  canceller.join();
  EXPECT_EQ(client_->GetServerInfo().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ServerClientTest, ResumesALogByOffset) {
  v1::LogChunk first;
  first.set_text("one\n");
  first.set_attempt(2);
  v1::LogChunk second;
  second.set_text("two\n");
  second.set_offset(4);
  second.set_attempt(2);
  v1::LogChunk end;
  end.set_end(v1::JobEvent::END_REASON_JOB_TERMINAL);
  service_->logs.push_back({{first}, grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut")});
  service_->logs.push_back({{second, end}});
  v1::StreamJobLogsRequest request;
  request.set_name("jobs/a");
  request.set_follow(true);
  std::string text;
  EXPECT_TRUE(client_
                  ->StreamJobLogs(request, options_,
                                  [&text](const v1::LogChunk& chunk) {
                                    text += chunk.text();
                                    return true;
                                  })
                  .ok());
  EXPECT_EQ(text, "one\ntwo\n");
  ASSERT_EQ(service_->log_requests.size(), 2u);
  EXPECT_EQ(service_->log_requests[1].offset(), 4);
  EXPECT_EQ(service_->log_requests[1].attempt(), 2);
}

TEST(RequestIdTest, IsARandomUuid) {
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    const std::string id = NewRequestId();
    EXPECT_THAT(
        id, MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 100u);
}

TEST(ErrorsTest, ToleratesDetailsThatAreNone) {
  const absl::Status status =
      ToAbslStatus(grpc::Status(grpc::StatusCode::INTERNAL, "bad", std::string("\xff\xff\xff")));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(DetailsOf(status).reason.empty());
  EXPECT_TRUE(ToAbslStatus(grpc::Status::OK).ok());
}

}  // namespace
}  // namespace blockswap::client
