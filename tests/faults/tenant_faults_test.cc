// SPDX-License-Identifier: Apache-2.0
// Rows 38, 44 and 45: what others must not read, and until when.
#include <gmock/gmock.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/rpc_server.h"
#include "tests/faults/wire_client.h"
#include "tests/server/testing/http_client.h"
#include "tests/server/testing/metric_text.h"
#include "tests/server/testing/metrics_page.h"
#include "tests/server/testing/test_certificates.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using Clock = std::chrono::steady_clock;
using Context = grpc::ClientContext;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class TenantFaultsTest : public ::testing::Test {
 protected:
  void Start(const std::function<void(ServerConfig&)>& adjust = [](ServerConfig&) {}) {
    server_ = std::make_unique<TestServer>(directory_.path(), [&](ServerConfig& config) {
      config.http = "127.0.0.1:0";
      adjust(config);
    });
    for (const char* tenant : {"red", "blue"}) tokens_[tenant] = MakeToken(tenant, tenant);
  }
  std::string MakeToken(const std::string& name, const std::string& tenant,
                        const std::string& role = "submitter") {
    Context context;
    v1::CreateTokenRequest request;
    request.set_display_name(name);
    request.set_role(role);
    request.set_tenant(tenant);
    v1::CreateTokenResponse response;
    const grpc::Status status = server_->admin().CreateToken(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.secret();
  }
  void Revoke(const std::string& name) {
    Context context;
    v1::RevokeTokenRequest request;
    request.set_name(name);
    v1::Token token;
    ASSERT_TRUE(server_->admin().RevokeToken(&context, request, &token).ok());
  }
  std::unique_ptr<Context> As(const std::string& who) {
    auto context = std::make_unique<Context>();
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    context->AddMetadata("authorization", absl::StrCat("Bearer ", tokens_[who]));
    return context;
  }
  std::string Header(const std::string& who) {
    return absl::StrCat("Authorization: Bearer ", tokens_[who], "\r\n");
  }
  v1::Job Create(const std::string& who, const std::string& id, const std::string& script) {
    v1::CreateJobRequest request = server_->Request(id, script);
    request.set_job_id(id);
    v1::Job job;
    const grpc::Status status = server_->training().CreateJob(As(who).get(), request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  // A watch's events up to the end of its snapshot, and how it ended.
  std::vector<v1::JobEvent> Watch(const std::string& who, const std::string& resume_token,
                                  grpc::Status* status) {
    v1::WatchJobsRequest request;
    request.set_resume_token(resume_token);
    request.set_include_snapshot(resume_token.empty());
    const auto context = As(who);
    const auto stream = server_->training().WatchJobs(context.get(), request);
    std::vector<v1::JobEvent> events;
    v1::JobEvent event;
    while (stream->Read(&event)) {
      events.push_back(event);
      if (event.type() == v1::JobEvent::TYPE_SNAPSHOT_END) context->TryCancel();
    }
    *status = stream->Finish();
    return events;
  }
  grpc::Status Get(const std::string& who, const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    v1::Job job;
    return server_->training().GetJob(As(who).get(), request, &job);
  }

  const TemporaryDirectory directory_;
  std::unique_ptr<TestServer> server_;
  std::map<std::string, std::string> tokens_;
};

using Row38 = TenantFaultsTest;
using Row45 = TenantFaultsTest;

// Every call with the name itself: tests/server/rpc/tenants_test.
TEST_F(Row38, NamesThatAreGuessedFindNothing) {
  Start();
  Create("red", "secret", "steps=1");
  ASSERT_TRUE(Get("red", "jobs/secret").ok());
  for (const char* name : {"secret", "jobs/secret", "jobs//secret", "jobs/./secret",
                           "jobs/x/../secret", "jobs/secret/", "jobs/SECRET", "jobs/%73ecret",
                           "jobs/secret/attempts/1", "jobs/@red/secret", "@red/secret", "jobs/*",
                           "jobs/-", "jobs/secret%", "jobs/s_cret", "jobs/secret' OR '1'='1"}) {
    EXPECT_THAT(Get("blue", name).error_code(),
                AnyOf(grpc::StatusCode::NOT_FOUND, grpc::StatusCode::INVALID_ARGUMENT))
        << name;
    v1::StreamJobLogsRequest log;
    log.set_name(name);
    const auto context = As("blue");
    const auto stream = server_->training().StreamJobLogs(context.get(), log);
    v1::LogChunk chunk;
    EXPECT_FALSE(stream->Read(&chunk)) << name;
    EXPECT_FALSE(stream->Finish().ok()) << name;
  }
  for (const char* target : {"/api/v1/jobs/secret", "/api/v1/jobs/secret/samples",
                             "/api/v1/jobs/secret/samples/..%2f..%2fattempt-1.log",
                             "/api/v1/jobs/secret/live", "/api/v1/jobs/secret/checkpoints"}) {
    const int port = server_->daemon().http_port();
    EXPECT_THAT(HttpFetch(port, target, "GET", Header("blue")).status, AnyOf(400, 404)) << target;
  }
}

TEST_F(Row38, TokensOfListsAndWatchesOpenNothingForOthersHoweverTheyAreChanged) {
  Start();
  for (const char* id : {"r1", "r2", "r3"}) Create("red", id, "steps=2 hold_at=1");
  Create("blue", "b1", "steps=2 hold_at=1");
  v1::ListJobsRequest list;
  list.set_page_size(1);
  v1::ListJobsResponse page;
  ASSERT_TRUE(server_->training().ListJobs(As("red").get(), list, &page).ok());
  const std::string page_token = page.next_page_token();
  grpc::Status status;
  const auto events = Watch("red", "", &status);
  ASSERT_FALSE(events.empty());
  const std::string resume_token = events.back().resume_token();
  ASSERT_FALSE(page_token.empty());
  ASSERT_FALSE(resume_token.empty());
  // As it is, with each of its bytes changed, without its end, and longer.
  const auto variants = [](const std::string& token) {
    std::vector<std::string> all = {token, token.substr(0, token.size() / 2), token + "x"};
    for (size_t i = 0; i < token.size(); ++i) {
      all.push_back(token);
      // Another letter: page tokens are text.
      all.back()[i] = token[i] == 'A' ? 'B' : 'A';
    }
    return all;
  };
  for (const std::string& token : variants(page_token)) {
    list.set_page_token(token);
    v1::ListJobsResponse others;
    EXPECT_EQ(server_->training().ListJobs(As("blue").get(), list, &others).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(others.jobs_size(), 0);
  }
  for (const std::string& token : variants(resume_token)) {
    EXPECT_TRUE(Watch("blue", token, &status).empty());
    EXPECT_THAT(status.error_code(),
                AnyOf(grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::OUT_OF_RANGE));
  }
}

TEST_F(Row38, ItTakesNoLongerToRefuseAnothersJobThanToMissOne) {
  constexpr size_t kCalls = 200;
  Start([](ServerConfig& config) { config.tenant_calls_per_second = 0; });
  Create("red", "secret", "steps=1");
  std::vector<double> others, missing;
  const auto timed = [this](const char* name) {
    const auto begin = Clock::now();
    EXPECT_EQ(Get("blue", name).error_code(), grpc::StatusCode::NOT_FOUND);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  for (size_t i = 0; i < kCalls; ++i) {
    others.push_back(timed("jobs/secret"));
    missing.push_back(timed("jobs/absent"));
  }
  // Of a busy machine's times only the shorter ones are those of the calls.
  const auto lower_decile = [](std::vector<double>& times) {
    std::nth_element(times.begin(), times.begin() + kCalls / 10, times.end());
    return times[kCalls / 10];
  };
  const double ratio = lower_decile(others) / lower_decile(missing);
  EXPECT_LT(ratio, 3);
  EXPECT_GT(ratio, 1.0 / 3);
}

// What is wrong with files, one by one: tests/server/auth/tls_files_test.
class Row44 : public ::testing::Test {
 protected:
  void SetUp() override { Put(authority_); }
  void Put(const TestAuthority& authority) {
    const PemPair pair = authority.Issue({"localhost", "DNS:localhost"});
    WriteTextFile(Path("tls.crt"), pair.certificate, 0644);
    WriteTextFile(Path("tls.key"), pair.key, 0600);
  }
  std::string Path(const char* name) const { return absl::StrCat(directory_.path(), "/", name); }

  const TemporaryDirectory directory_;
  const TestAuthority authority_{"first"}, next_{"next"};
};

TEST_F(Row44, WithFilesThatDoNotServeTheStartIsRefusedByName) {
  ServerConfig config = TestConfig(directory_.path());
  config.listen = "localhost:0";
  config.tls_certificate = Path("tls.crt");
  config.tls_key = Path("tls.key");
  const auto start = [&config] {
    return Daemon::Start(config, std::make_unique<ScriptedChecker>()).status();
  };
  EXPECT_TRUE(start().ok()) << start();
  WriteTextFile(Path("tls.key"), next_.Issue({"localhost", "DNS:localhost"}).key, 0600);
  EXPECT_THAT(std::string(start().message()), HasSubstr("tls.key"));
  const PemPair expired = authority_.Issue({"localhost", "DNS:localhost", -7200, -3600});
  WriteTextFile(Path("tls.crt"), expired.certificate, 0644);
  WriteTextFile(Path("tls.key"), expired.key, 0600);
  EXPECT_THAT(std::string(start().message()), HasSubstr("expired"));
  ::unlink(Path("tls.crt").c_str());
  EXPECT_THAT(std::string(start().message()), HasSubstr("tls.crt"));
}

// A watch of health, over TLS: as bytes, since no class of ours speaks it.
class HealthWatch final {
 public:
  explicit HealthWatch(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    call_ = stub_.PrepareCall(&context_, "/grpc.health.v1.Health/Watch", &queue_);
    call_->StartCall(nullptr);
    Next();
    const grpc::Slice every_service("");
    call_->WriteLast(grpc::ByteBuffer(&every_service, 1), grpc::WriteOptions(), nullptr);
    Next();
  }
  ~HealthWatch() {
    context_.TryCancel();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Next();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  // The next status: 1 serving, 2 not; 0 at the end.
  int Read() {
    grpc::ByteBuffer answer;
    call_->Read(&answer, nullptr);
    std::vector<grpc::Slice> slices;
    if (!Next() || !answer.Dump(&slices).ok()) return 0;
    std::string bytes;
    for (const grpc::Slice& slice : slices) bytes.append(slice.begin(), slice.end());
    return bytes.size() == 2 ? bytes[1] : 0;
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(30);
    return queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT && ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST_F(Row44, NewFilesServeNewConnectionsBadOnesLeaveTheOldAndStreamsGoOn) {
  const auto store = *JobStore::Open(Path("jobs.db"));
  const auto tokens = *TokenTable::Load(*store);
  const Authenticator authenticator(*tokens, {});
  const auto files = *TlsFiles::Start({Path("tls.crt"), Path("tls.key"), ""}, Path("copies"),
                                      std::chrono::milliseconds(20));
  RpcServerOptions options;
  EXPECT_LE(options.tcp.refresh, std::chrono::seconds(30)) << "with ten for the files' own watch";
  options.socket_path = Path("d.sock");
  options.auth = &authenticator;
  options.tcp.address = "localhost:0";
  options.tcp.tls = files->staged();
  options.tcp.refresh = std::chrono::seconds(1);
  const auto server = *RpcServer::Start(options, {});
  server->SetServing(true);
  const auto connect = [&server](const TestAuthority& authority) {
    grpc::SslCredentialsOptions trust;
    trust.pem_root_certs = authority.certificate();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(absl::StrCat("localhost:", server->tcp_port()),
                                     grpc::SslCredentials(trust), arguments);
  };
  const auto old_connection = connect(authority_);
  HealthWatch stream(old_connection);
  ASSERT_EQ(stream.Read(), 1);
  Put(next_);
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (!IsServing(connect(next_)) && Clock::now() < deadline) {
  }
  EXPECT_TRUE(IsServing(connect(next_)));
  EXPECT_FALSE(IsServing(connect(authority_)));
  WriteTextFile(Path("tls.key"), authority_.Issue({"localhost", "DNS:localhost"}).key, 0600);
  EXPECT_FALSE(files->Check().ok());
  EXPECT_TRUE(IsServing(connect(next_)));
  EXPECT_TRUE(IsServing(old_connection));
  // The stream from before all this hears what happens now.
  server->SetServing(false);
  EXPECT_EQ(stream.Read(), 2);
}

// Watches over gRPC: tests/server/rpc/tenants_test.
TEST_F(Row45, RevokedTokenEndsLogsThatAreFollowedAndWatchesOverHttp) {
  Start([](ServerConfig& config) { config.http_auth = true; });
  tokens_["all"] = MakeToken("all", "*", "viewer");
  const v1::Job job = Create("red", "r1", "steps=2 hold_at=2");
  server_->Watch(job.name(),
                 [](const v1::JobEvent& event) { return event.progress().step() == 1; });
  v1::StreamJobLogsRequest log;
  log.set_name(job.name());
  log.set_follow(true);
  const auto context = As("red");
  const auto stream = server_->training().StreamJobLogs(context.get(), log);
  v1::LogChunk chunk;
  ASSERT_TRUE(stream->Read(&chunk));
  HttpReader watch(server_->daemon().http_port(), "/api/v1/watch", Header("all"));
  ASSERT_TRUE(watch.ReadUntil("heartbeat").has_value());
  Revoke("red");
  Revoke("all");
  while (stream->Read(&chunk)) {
  }
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
  EXPECT_EQ(ErrorReason(status), "TOKEN_INVALID");
  const auto end = watch.ReadUntil("event: end");
  ASSERT_TRUE(end.has_value());
  EXPECT_THAT(*end, HasSubstr("TOKEN_INVALID"));
  LetGo(job);
  EXPECT_EQ(server_->WaitTerminal(job.name()).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(Row45, RevokedTokenEndsAlsoTheStreamOfOneWhoDoesNotRead) {
  static constexpr char kOpen[] = "blockswap_watch_streams{kind=\"events\"}";
  Start([](ServerConfig& config) { config.bookmark_seconds = 0.5; });
  tokens_["all"] = MakeToken("all", "*", "viewer");
  const auto await_open = [this](double number) {
    return AwaitMetrics(server_->daemon().http_port(), [&](const std::string& page) {
      return TextValueOf(page, kOpen) == number;
    });
  };
  const std::string socket = server_->daemon().config().socket;
  const std::string bytes =
      RecordWatch(directory_.path(), socket, v1::WatchJobsRequest(), tokens_["all"]);
  ASSERT_TRUE(await_open(0));
  std::vector<UniqueFd> stalled;
  stalled.push_back(ConnectTo(socket));
  ASSERT_TRUE(SendAll(stalled[0], bytes));
  const SilentReader reader(stalled);
  ASSERT_TRUE(await_open(1));
  JobRecord job;
  job.id = job.uid = "flood";
  job.state = JobState::kSuspended;
  ASSERT_TRUE(server_->daemon().store().CreateJob(job, "", "", 1000).ok());
  // More than a connection takes, fewer than a slow reader is cut for.
  ASSERT_TRUE(server_->daemon()
                  .store()
                  .UpdateJob("flood",
                             [](JobRecord&, JobChange& change) {
                               for (int i = 0; i < 800; ++i) {
                                 change.events.push_back(MakeEvent(EventType::kWarning, "FLOOD",
                                                                   std::string(16 << 10, 'x')));
                               }
                               return absl::OkStatus();
                             })
                  .ok());
  Revoke("all");
  EXPECT_TRUE(await_open(0));
}

}  // namespace
}  // namespace blockswap::server
