// SPDX-License-Identifier: Apache-2.0
// Rows 51 and 52: a store, workers and clients of another release.
#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/store/database.h"
#include "server/store/schema.h"
#include "tests/server/testing/daemon_process.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string ReadText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class UpgradeFaultsTest : public ::testing::Test {
 protected:
  std::string store_path() const { return directory_.path() + "/state/jobs.db"; }
  // As the first release left it: one job done, one running, one waiting.
  void MakeFirstStore() {
    const char* const fixture = ::getenv("BLOCKSWAP_SCHEMA_V1");
    ASSERT_NE(fixture, nullptr);
    std::filesystem::create_directories(directory_.path() + "/state");
    const std::string outputs = directory_.path() + "/outputs/";
    for (const char* job : {"digits-0001", "crash-0002", "later-0003"}) {
      std::filesystem::create_directories(outputs + job);
    }
    auto database = Database::Open(store_path(), /*read_only=*/false);
    ASSERT_TRUE(database.ok()) << database.status();
    const std::string sql = absl::StrReplaceAll(ReadText(fixture), {{"/outputs/", outputs}});
    const absl::Status made = (*database)->Execute(sql);
    ASSERT_TRUE(made.ok()) << made;
  }

  TemporaryDirectory directory_;
};

using Row51 = UpgradeFaultsTest;
using Row52 = UpgradeFaultsTest;

TEST_F(Row51, AStoreOfTheFirstReleaseIsTakenOverAndItsRunningJobGoesOn) {
  MakeFirstStore();
  // Its jobs ended years ago: they would be forgotten.
  TestServer server(directory_.path(), [](ServerConfig& config) { config.retention_days = 0; });
  const v1::Job done = server.Get("jobs/digits-0001");
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.progress().step(), 4);
  // Its worker is gone, which is nobody's fault: no restart is used up.
  EXPECT_EQ(server.WaitTerminal("jobs/crash-0002").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(server.WaitTerminal("jobs/later-0003").state(), v1::JOB_STATE_SUCCEEDED);
  const auto attempts = server.Attempts("jobs/crash-0002");
  ASSERT_EQ(attempts.size(), 3u);
  EXPECT_EQ(attempts[0].failure().reason(), "WORKER_SIGNALLED");
  EXPECT_EQ(attempts[1].failure().reason(), "SERVER_RESTARTED");
  EXPECT_EQ(attempts[1].failure().category(), v1::FAILURE_CATEGORY_PREEMPTED);
  EXPECT_TRUE(attempts[2].failure().reason().empty());
  EXPECT_TRUE(std::filesystem::exists(store_path() + ".v1.bak"));
}

TEST_F(Row51, ADowngradeIsRefusedAndTheStoreStaysAsItIs) {
  {
    TestServer server(directory_.path());
    server.MustCreate("job", "steps=1");
  }
  const int newer = CurrentSchemaVersion() + 1;
  {
    auto database = Database::Open(store_path(), /*read_only=*/false);
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE((*database)->Execute(absl::StrCat("PRAGMA user_version=", newer)).ok());
  }
  const std::string before = ReadText(store_path());
  const auto refused =
      Daemon::Start(TestConfig(directory_.path()), std::make_unique<ScriptedChecker>());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("written by a newer blockswapd"),
                    HasSubstr(absl::StrCat("schema ", newer, ", this one knows ", newer - 1)),
                    HasSubstr("restore the copy")));
  EXPECT_EQ(ReadText(store_path()), before);
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat(store_path(), ".v", newer, ".bak")));
}

// The server is the old one still, the worker's program is new already, or the other way round.
TEST_F(Row51, AWorkerOfAnotherReleaseIsRefusedAndTheJobSaysWhatToDo) {
  TestServer server(directory_.path());
  for (const int protocol : {0, 2}) {
    v1::CreateJobRequest request =
        server.Request("other", absl::StrCat("steps=3 protocol=", protocol, " crash_attempts=9"));
    request.mutable_spec()->mutable_retry()->set_max_restarts(1);
    v1::Job job;
    ASSERT_TRUE(server.Create(request, &job).ok());
    const v1::Job failed = server.WaitTerminal(job.name());
    EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(failed.failure().reason(), "WORKER_PROTOCOL");
    // Tried again first: an upgrade that is under way ends.
    EXPECT_EQ(failed.attempt(), 2);
    EXPECT_THAT(failed.failure().message(),
                AllOf(HasSubstr(absl::StrCat("the worker speaks protocol ", protocol)),
                      HasSubstr("this server 1"), HasSubstr("must be of one release")));
  }
}

TEST_F(Row51, AnUpgradeThatEndsInTimeLetsTheJobGoOn) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("other", "steps=3 protocol=2");
  EXPECT_EQ(server.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(Row51, ARunningWorkerThatTheNextServerCannotSpeakToIsReplacedAtNoCost) {
  v1::Job job;
  pid_t worker = 0;
  {
    DaemonProcess daemon(directory_.path());
    ASSERT_TRUE(daemon.ready());
    DaemonClient client(directory_.path());
    job = client.Create("steps=3 protocol_later=2");
    ASSERT_TRUE(client.WatchUntil(
        job.name(), [](const v1::JobEvent& event) { return event.progress().step() == 2; }));
    worker = FakeWorkerPid(job);
    daemon.End(SIGKILL);
  }
  DaemonProcess daemon(directory_.path());
  ASSERT_TRUE(daemon.ready());
  DaemonClient client(directory_.path());
  const v1::Job done = client.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  const std::vector<v1::Attempt> attempts = client.Attempts(job.name());
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].failure().category(), v1::FAILURE_CATEGORY_PREEMPTED);
  EXPECT_EQ(attempts[0].failure().reason(), "SERVER_RESTARTED");
  EXPECT_THAT(attempts[0].failure().message(), HasSubstr("speaks protocol 2"));
  EXPECT_EQ(attempts[1].start_step(), 2);
  EXPECT_TRUE(IsGone(worker));
}

// As a client of a later release would send it: numbers that no message here has.
void AddUnknownFields(google::protobuf::Message* message) {
  google::protobuf::UnknownFieldSet* fields =
      message->GetReflection()->MutableUnknownFields(message);
  fields->AddVarint(5001, 1);
  fields->AddLengthDelimited(5002, "a setting of next year");
}

TEST_F(Row52, FieldsThatOnlyANewerClientKnowsAreIgnored) {
  TestServer server(directory_.path());
  v1::CreateJobRequest request = server.Request("newer", "steps=2");
  request.mutable_spec()->mutable_retry()->set_max_restarts(7);
  AddUnknownFields(&request);
  AddUnknownFields(request.mutable_spec());
  AddUnknownFields(request.mutable_spec()->mutable_memory());
  v1::Job job;
  const grpc::Status created = server.Create(request, &job);
  ASSERT_TRUE(created.ok()) << created.error_message();
  const v1::Job done = server.WaitTerminal(job.name());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.spec().retry().max_restarts(), 7);
  EXPECT_EQ(done.spec().name(), "newer");
}

TEST_F(Row52, ValuesOfEnumsThatOnlyANewerClientKnowsAreRefusedNotTakenForTheDefault) {
  TestServer server(directory_.path());
  const v1::Job job = server.MustCreate("goes-on", "steps=3 hold_at=2");
  server.WaitState(job.name(), v1::JOB_STATE_RUNNING);
  {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_name(job.name());
    request.set_mode(static_cast<v1::CancelJobRequest::Mode>(77));
    v1::Job ignored;
    const grpc::Status refused = server.training().CancelJob(&context, request, &ignored);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    const auto violations = ErrorViolations(refused);
    ASSERT_EQ(violations.field_violations_size(), 1);
    EXPECT_EQ(violations.field_violations(0).field(), "mode");
    EXPECT_THAT(violations.field_violations(0).description(),
                AllOf(HasSubstr("the value 77"), HasSubstr("MODE_GRACEFUL, MODE_NOW")));
  }
  {
    grpc::ClientContext context;
    v1::ListJobsRequest request;
    request.set_view(static_cast<v1::JobView>(9));
    v1::ListJobsResponse ignored;
    EXPECT_EQ(server.training().ListJobs(&context, request, &ignored).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(server.Get(job.name()).state(), v1::JOB_STATE_RUNNING);
  LetGo(job);
  EXPECT_EQ(server.WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(Row52, ACallThatOnlyANewerServerHasIsUnimplemented) {
  TestServer server(directory_.path());
  for (const char* method :
       {"/blockswap.v1.TrainingService/TeleportJob", "/blockswap.v2.TrainingService/GetJob"}) {
    grpc::GenericStub stub(server.channel());
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    grpc::ByteBuffer answer;
    const grpc::ByteBuffer nothing(nullptr, 0);
    const auto call = stub.PrepareUnaryCall(&context, method, nothing, &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&answer, &status, &queue);
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
  }
}

TEST_F(Row52, AServerSaysWhatItCanSoThatClientsNeedNotTry) {
  TestServer server(directory_.path());
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(server.admin().GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  const std::set<std::string> features(info.features().begin(), info.features().end());
  EXPECT_EQ(features.size(), static_cast<size_t>(info.features_size())) << "one is there twice";
  for (const char* feature : {"watch", "logs", "suspend", "retry", "checkpoints", "queue"}) {
    EXPECT_THAT(features, Contains(feature));
  }
  EXPECT_FALSE(info.version().empty());
}

}  // namespace
}  // namespace blockswap::server
