// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/server_channel.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "blockswap/v1/worker.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "offload/base/mutex.h"

namespace blockswap::worker {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kPatience(30);

// A server that remembers what it stored over its own restarts, acknowledges or not, and breaks
// streams on command.
class FakeServer final : public v1::WorkerService::Service {
 public:
  explicit FakeServer(const std::string& directory) : path_(directory + "/worker.sock") { Start(); }
  ~FakeServer() override { Stop(); }

  void Start() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + path_, grpc::experimental::LocalServerCredentials(UDS));
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void Stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_.reset();
  }

  grpc::Status Attach(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::ServerMessage, v1::WorkerMessage>* stream) override {
    v1::WorkerMessage message;
    if (!stream->Read(&message) || !message.has_hello())
      return {grpc::StatusCode::INVALID_ARGUMENT, "no hello"};
    {
      base::MutexLock lock(mutex_);
      hellos_.push_back(message.hello());
      changed_.SignalAll();
      if (message.hello().token() != token_)
        return {grpc::StatusCode::UNAUTHENTICATED, "wrong token"};
      v1::ServerMessage welcome;
      welcome.mutable_welcome()->set_last_sequence_seen(last_seen_);
      stream->Write(welcome);
      stream_ = stream;
      changed_.SignalAll();
    }
    const grpc::Status status = Receive(stream);
    base::MutexLock lock(mutex_);
    stream_ = nullptr;
    return status;
  }

  void Send(const v1::ServerMessage& message) {
    base::MutexLock lock(mutex_);
    while (stream_ == nullptr) changed_.Wait(mutex_);
    stream_->Write(message);
  }

  bool Await(const std::function<bool(FakeServer&)>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    base::MutexLock lock(mutex_);
    while (!condition(*this)) {
      if (!changed_.WaitUntil(mutex_, deadline)) return condition(*this);
    }
    return true;
  }

  void AcknowledgeAll() {
    base::MutexLock lock(mutex_);
    acknowledges_ = true;
    if (stream_ == nullptr) return;
    v1::ServerMessage message;
    message.set_acknowledged_sequence(last_seen_);
    stream_->Write(message);
  }

  // Settings and records; guarded by mutex_ where threads meet (Await holds it for its condition).
  base::Mutex mutex_;
  base::CondVar changed_;
  std::string token_ = "secret";
  bool acknowledges_ = true;
  std::function<bool()> breaks_now_ = [] { return false; };
  std::vector<v1::Hello> hellos_;
  std::vector<v1::WorkerMessage> stored_;
  std::vector<std::string> protocol_faults_;
  int heartbeats_ = 0;
  int repeats_ = 0;
  int64_t last_seen_ = 0;
  const std::string path_;

 private:
  grpc::Status Receive(grpc::ServerReaderWriter<v1::ServerMessage, v1::WorkerMessage>* stream) {
    v1::WorkerMessage message;
    while (stream->Read(&message)) {
      base::MutexLock lock(mutex_);
      if (message.has_heartbeat()) {
        ++heartbeats_;
        if (message.sequence() != 0) protocol_faults_.push_back("numbered heartbeat");
      } else if (message.sequence() <= last_seen_) {
        ++repeats_;
      } else if (message.sequence() != last_seen_ + 1) {
        protocol_faults_.push_back(absl::StrCat("gap before ", message.sequence()));
      } else {
        last_seen_ = message.sequence();
        stored_.push_back(message);
        if (acknowledges_) {
          v1::ServerMessage acknowledgement;
          acknowledgement.set_acknowledged_sequence(last_seen_);
          stream->Write(acknowledgement);
        }
      }
      changed_.SignalAll();
      if (breaks_now_()) return {grpc::StatusCode::UNAVAILABLE, "broken on purpose"};
    }
    return grpc::Status::OK;
  }

  std::unique_ptr<grpc::Server> server_;
  grpc::ServerReaderWriter<v1::ServerMessage, v1::WorkerMessage>* stream_ = nullptr;
};

class ServerChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/blockswap-channel-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    server_ = std::make_unique<FakeServer>(directory_);
    options_ = {server_->path_, "secret", "uid-1", 3};
  }
  void TearDown() override {
    reporter_.reset();
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Connect() {
    absl::StatusOr<std::unique_ptr<Reporter>> reporter = ConnectToServer(options_);
    ASSERT_TRUE(reporter.ok()) << reporter.status();
    reporter_ = *std::move(reporter);
  }

  void ReportStep(int64_t step) {
    StepReport report;
    report.step = step;
    reporter_->Step(report);
  }

  static std::vector<int64_t> Steps(const FakeServer& server) {
    std::vector<int64_t> steps;
    for (const v1::WorkerMessage& message : server.stored_) {
      for (const v1::Step& step : message.steps().steps()) steps.push_back(step.step());
    }
    return steps;
  }

  void ExpectStepsOnce(int64_t count) {
    EXPECT_TRUE(server_->Await([count](FakeServer& server) {
      return static_cast<int64_t>(Steps(server).size()) >= count;
    }));
    base::MutexLock lock(server_->mutex_);
    std::vector<int64_t> expected;
    for (int64_t i = 1; i <= count; ++i) expected.push_back(i);
    EXPECT_EQ(Steps(*server_), expected);
    EXPECT_THAT(server_->protocol_faults_, testing::IsEmpty());
  }

  std::string directory_;
  std::unique_ptr<FakeServer> server_;
  ServerChannelOptions options_;
  std::unique_ptr<Reporter> reporter_;
};

TEST_F(ServerChannelTest, SaysWhoItIs) {
  Connect();
  base::MutexLock lock(server_->mutex_);
  ASSERT_EQ(server_->hellos_.size(), 1u);
  const v1::Hello& hello = server_->hellos_[0];
  EXPECT_EQ(hello.protocol(), 1);
  EXPECT_EQ(hello.job_uid(), "uid-1");
  EXPECT_EQ(hello.attempt(), 3);
  EXPECT_EQ(hello.pid(), getpid());
  EXPECT_GT(hello.process_start_time(), 0);
  EXPECT_FALSE(hello.boot_id().empty());
  EXPECT_FALSE(hello.build().empty());
  EXPECT_EQ(hello.last_sequence(), 0);
}

TEST_F(ServerChannelTest, DeliversEveryKindOfReportInOrder) {
  Connect();
  reporter_->Phase("loading");
  reporter_->Ready({});
  ReportStep(1);
  reporter_->Memory({});
  reporter_->CheckpointCommitted(1, "/out/checkpoints/step-1", "abc", 10, 0.5);
  reporter_->SampleReady(1, "/out/samples/\xff.png");
  reporter_->Warning("PINNING_FELL_BACK", "why");
  reporter_->Exiting({});
  base::MutexLock lock(server_->mutex_);
  std::vector<int> kinds;
  for (const v1::WorkerMessage& message : server_->stored_) kinds.push_back(message.body_case());
  EXPECT_THAT(kinds,
              testing::ElementsAre(v1::WorkerMessage::kPhase, v1::WorkerMessage::kReady,
                                   v1::WorkerMessage::kSteps, v1::WorkerMessage::kMemory,
                                   v1::WorkerMessage::kCheckpoint, v1::WorkerMessage::kSample,
                                   v1::WorkerMessage::kWarning, v1::WorkerMessage::kExiting));
  EXPECT_EQ(server_->stored_[5].sample().file(), "/out/samples/?.png");
}

TEST_F(ServerChannelTest, SurvivesAServerRestartWithoutLossOrRepetition) {
  Connect();
  for (int64_t step = 1; step <= 50; ++step) ReportStep(step);
  ASSERT_TRUE(server_->Await([](FakeServer& server) { return !server.stored_.empty(); }));
  server_->Stop();
  for (int64_t step = 51; step <= 100; ++step) ReportStep(step);
  server_->Start();
  for (int64_t step = 101; step <= 150; ++step) ReportStep(step);
  ExpectStepsOnce(150);
}

TEST_F(ServerChannelTest, RepeatsWhatWasStoredButNeverAcknowledged) {
  server_->acknowledges_ = false;
  Connect();
  ReportStep(1);
  reporter_->Phase("sampling");
  ASSERT_TRUE(server_->Await([](FakeServer& server) { return server.last_seen_ == 2; }));
  {
    // The restored backup of a store knows less than was stored: the worker still has it.
    base::MutexLock lock(server_->mutex_);
    server_->last_seen_ = 0;
    server_->stored_.clear();
  }
  server_->Stop();
  server_->Start();
  ASSERT_TRUE(server_->Await([](FakeServer& server) { return server.last_seen_ == 2; }));
  ExpectStepsOnce(1);
  server_->AcknowledgeAll();
  reporter_->Exiting({});
}

TEST_F(ServerChannelTest, DeliversEachStepOnceOverManyBrokenStreams) {
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);  // guarded by the server's mutex from here on
  int breaks = 0;
  server_->breaks_now_ = [&random, &breaks] {
    return breaks < 12 && random() % 3 == 0 && ++breaks > 0;
  };
  Connect();
  for (int64_t step = 1; step <= 400; ++step) {
    ReportStep(step);
    if (step % 10 == 0) reporter_->Warning("R", "keeps batches apart");
  }
  ExpectStepsOnce(400);
  reporter_->Exiting({});
  base::MutexLock lock(server_->mutex_);
  EXPECT_TRUE(server_->stored_.back().has_exiting());
  EXPECT_EQ(server_->repeats_, 0) << "an honest welcome leaves nothing to repeat";
}

TEST_F(ServerChannelTest, HearsRequests) {
  Connect();
  EXPECT_EQ(reporter_->stop_requested(), StopRequest::kNone);
  EXPECT_FALSE(reporter_->TakeCheckpointRequest());
  v1::ServerMessage message;
  message.mutable_checkpoint();
  server_->Send(message);
  message.mutable_sample();
  server_->Send(message);
  message.mutable_stop()->set_mode(v1::Stop::MODE_SUSPEND);
  server_->Send(message);
  // The answer to a ping proves that everything before it was heard.
  message.mutable_ping();
  server_->Send(message);
  ASSERT_TRUE(server_->Await([](FakeServer& server) { return server.heartbeats_ > 0; }));
  EXPECT_EQ(reporter_->stop_requested(), StopRequest::kSuspend);
  EXPECT_TRUE(reporter_->TakeCheckpointRequest());
  EXPECT_FALSE(reporter_->TakeCheckpointRequest());
  EXPECT_TRUE(reporter_->TakeSampleRequest());
  EXPECT_FALSE(reporter_->TakeSampleRequest());
}

TEST_F(ServerChannelTest, NeverTakesBackStopNow) {
  Connect();
  v1::ServerMessage message;
  message.mutable_stop()->set_mode(v1::Stop::MODE_NOW);
  server_->Send(message);
  message.mutable_stop()->set_mode(v1::Stop::MODE_CANCEL);
  server_->Send(message);
  message.mutable_ping();
  server_->Send(message);
  ASSERT_TRUE(server_->Await([](FakeServer& server) { return server.heartbeats_ > 0; }));
  EXPECT_EQ(reporter_->stop_requested(), StopRequest::kNow);
}

TEST_F(ServerChannelTest, BeatsWithoutBeingAsked) {
  Connect();
  EXPECT_TRUE(server_->Await([](FakeServer& server) { return server.heartbeats_ >= 2; }));
}

TEST_F(ServerChannelTest, ReturnsTheServersRefusal) {
  options_.token = "guess";
  const absl::Status status = ConnectToServer(options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(status.message()), HasSubstr("wrong token"));
  EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("guess")));
}

TEST_F(ServerChannelTest, GivesUpWhenNobodyListens) {
  server_->Stop();
  options_.connect_timeout = absl::Milliseconds(300);
  const absl::Status status = ConnectToServer(options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("300ms"));
}

TEST_F(ServerChannelTest, RefusesOptionsThatCannotWork) {
  ServerChannelOptions options = options_;
  options.token = "";
  EXPECT_EQ(ConnectToServer(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = options_;
  options.socket_path = std::string(200, 'x');
  EXPECT_THAT(std::string(ConnectToServer(options).status().message()),
              HasSubstr("socket path too long"));
}

TEST_F(ServerChannelTest, StopsTrainingWhenTheServerDisownsTheAttempt) {
  Connect();
  server_->Stop();
  {
    base::MutexLock lock(server_->mutex_);
    server_->token_ = "of a newer attempt";
  }
  server_->Start();
  ASSERT_TRUE(server_->Await([](FakeServer& server) { return server.hellos_.size() >= 2; }));
  // Exiting waits for a word of the server or for the end of the channel; a disowned attempt gets
  // the latter.
  reporter_->Exiting({});
  EXPECT_EQ(reporter_->stop_requested(), StopRequest::kNow);
}

TEST_F(ServerChannelTest, ExitingWaitsForTheAcknowledgementWithinABound) {
  server_->acknowledges_ = false;
  options_.exit_timeout = absl::Milliseconds(200);
  Connect();
  const auto start = std::chrono::steady_clock::now();
  reporter_->Exiting({});
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
  server_->AcknowledgeAll();
}

TEST_F(ServerChannelTest, LoadingIsReportedNowAndThenAndAtItsEnd) {
  Connect();
  constexpr int64_t kBlocks = 500;
  reporter_->LoadProgress(1, kBlocks);
  // What waits to be sent gives way to newer words of its kind.
  EXPECT_TRUE(server_->Await([](FakeServer& server) { return !server.stored_.empty(); }));
  for (int64_t done = 2; done <= kBlocks; ++done) reporter_->LoadProgress(done, kBlocks);
  EXPECT_TRUE(server_->Await([](FakeServer& server) {
    return !server.stored_.empty() && server.stored_.back().phase().bytes_done() == kBlocks;
  }));
  base::MutexLock lock(server_->mutex_);
  EXPECT_EQ(server_->stored_.front().phase().phase(), "loading");
  EXPECT_EQ(server_->stored_.front().phase().bytes_done(), 1);
  EXPECT_LT(server_->stored_.size(), static_cast<size_t>(kBlocks) / 10);
}

}  // namespace
}  // namespace blockswap::worker
