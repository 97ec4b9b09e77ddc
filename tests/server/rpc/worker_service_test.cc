// SPDX-License-Identifier: Apache-2.0
// Workers that do not keep to the protocol.
#include "server/rpc/worker_service.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>

#include "server/base/random_text.h"
#include "server/rpc/rpc_server.h"
#include "server/supervisor/process_identity.h"
#include "tests/server/testing/temporary_directory.h"

namespace blockswap::server {
namespace {

class QueueingObserver final : public AttemptObserver {
 public:
  struct Update {
    int64_t sequence = 0;
    WorkerUpdate update;
  };
  void OnUpdate(const AttemptKey&, int64_t sequence, WorkerUpdate update) override {
    base::MutexLock lock(mutex_);
    updates_.push_back({sequence, std::move(update)});
    changed_.SignalAll();
  }
  void OnExit(const AttemptKey&, const ProcessExit&) override {}
  Update Next() {
    base::MutexLock lock(mutex_);
    while (updates_.empty()) changed_.Wait(mutex_);
    Update update = std::move(updates_.front());
    updates_.pop_front();
    return update;
  }
  size_t waiting() {
    base::MutexLock lock(mutex_);
    return updates_.size();
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<Update> updates_ ABSL_GUARDED_BY(mutex_);
};

using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::ServerMessage>;

class WorkerServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RpcServerOptions options;
    options.socket_path = service_.socket_path();
    options.max_receive_bytes = 1 << 20;
    auto server = RpcServer::Start(options, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::WorkerService::NewStub(grpc::CreateChannel(
        "unix:" + service_.socket_path(), grpc::experimental::LocalCredentials(UDS)));
    service_.Expect({key_, "uid", ToHex(Sha256("token"))}, observer_);
  }
  void TearDown() override { service_.Forget(key_); }
  static v1::WorkerMessage Hello(const std::string& token, int protocol = 1) {
    v1::WorkerMessage message;
    message.mutable_hello()->set_protocol(protocol);
    message.mutable_hello()->set_job_uid("uid");
    message.mutable_hello()->set_attempt(1);
    message.mutable_hello()->set_token(token);
    return message;
  }
  static v1::WorkerMessage Warning(int64_t sequence) {
    v1::WorkerMessage message;
    message.set_sequence(sequence);
    message.mutable_warning()->set_reason("W");
    return message;
  }
  grpc::StatusCode Refusal(const v1::WorkerMessage& first) {
    grpc::ClientContext context;
    const std::unique_ptr<Stream> stream = stub_->Attach(&context);
    stream->Write(first);
    v1::ServerMessage answer;
    EXPECT_FALSE(stream->Read(&answer));
    return stream->Finish().error_code();
  }

  TemporaryDirectory directory_;
  const AttemptKey key_{"job", 1};
  QueueingObserver observer_;
  WorkerServiceImpl service_{directory_.path() + "/w.sock"};
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
};

TEST_F(WorkerServiceTest, StrangersAreRefused) {
  EXPECT_EQ(Refusal(Hello("wrong")), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Refusal(Hello("")), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Refusal(Hello("wrong", /*protocol=*/2)), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Refusal(Warning(1)), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Refusal(v1::WorkerMessage()), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(observer_.waiting(), 0u);
}

TEST_F(WorkerServiceTest, OurOwnWorkerOfAnotherReleaseIsRefusedAndItsAttemptHearsOfIt) {
  for (const int protocol : {0, 2}) {
    EXPECT_EQ(Refusal(Hello("token", protocol)), grpc::StatusCode::INVALID_ARGUMENT);
    const auto update = observer_.Next().update;
    ASSERT_TRUE(std::holds_alternative<DetachedUpdate>(update));
    EXPECT_NE(std::get<DetachedUpdate>(update).fault.find("must be of one release"),
              std::string::npos);
  }
}

TEST_F(WorkerServiceTest, NextMessageIsReadWhenTheLastIsStored) {
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Attach(&context);
  stream->Write(Hello("token"));
  v1::ServerMessage answer;
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_TRUE(answer.has_welcome());
  EXPECT_TRUE(std::holds_alternative<AttachedUpdate>(observer_.Next().update));
  stream->Write(Warning(1));
  stream->Write(Warning(2));
  EXPECT_EQ(observer_.Next().sequence, 1);
  service_.Acknowledge(key_, 1);
  EXPECT_EQ(observer_.Next().sequence, 2);
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.acknowledged_sequence(), 1);
  context.TryCancel();
}

TEST_F(WorkerServiceTest, RepeatedMessagesAfterAReconnectCountOnce) {
  {
    grpc::ClientContext context;
    const std::unique_ptr<Stream> stream = stub_->Attach(&context);
    stream->Write(Hello("token"));
    stream->Write(Warning(1));
    observer_.Next();
    EXPECT_EQ(observer_.Next().sequence, 1);
    context.TryCancel();
    stream->Finish();
  }
  EXPECT_TRUE(std::holds_alternative<DetachedUpdate>(observer_.Next().update));
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Attach(&context);
  stream->Write(Hello("token"));
  v1::ServerMessage answer;
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.welcome().last_sequence_seen(), 0);
  EXPECT_TRUE(std::holds_alternative<AttachedUpdate>(observer_.Next().update));
  stream->Write(Warning(1));
  stream->Write(Warning(2));
  service_.Acknowledge(key_, 1);
  EXPECT_EQ(observer_.Next().sequence, 2);
  context.TryCancel();
}

TEST_F(WorkerServiceTest, GarbageAfterTheHelloIsAFault) {
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Attach(&context);
  stream->Write(Hello("token"));
  observer_.Next();
  stream->Write(v1::WorkerMessage());
  const auto update = observer_.Next().update;
  ASSERT_TRUE(std::holds_alternative<DetachedUpdate>(update));
  EXPECT_FALSE(std::get<DetachedUpdate>(update).fault.empty());
  v1::ServerMessage answer;
  while (stream->Read(&answer)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
}

TEST_F(WorkerServiceTest, MessagesThatAreTooLargeEndInAFault) {
  bool faulted = false;
  for (int round = 0; round < 12 && !faulted; ++round) {
    grpc::ClientContext context;
    const std::unique_ptr<Stream> stream = stub_->Attach(&context);
    stream->Write(Hello("token"));
    v1::WorkerMessage large = Warning(1);
    large.mutable_warning()->set_message(std::string(2 << 20, 'x'));
    stream->Write(large);
    v1::ServerMessage answer;
    while (stream->Read(&answer)) {
    }
    stream->Finish();
    EXPECT_TRUE(std::holds_alternative<AttachedUpdate>(observer_.Next().update));
    const auto update = observer_.Next().update;
    ASSERT_TRUE(std::holds_alternative<DetachedUpdate>(update));
    faulted = !std::get<DetachedUpdate>(update).fault.empty();
  }
  EXPECT_TRUE(faulted);
}

TEST_F(WorkerServiceTest, StopSentBeforeTheWorkerIsThereReachesIt) {
  WorkerCommand stop;
  stop.kind = CommandKind::kStop;
  stop.stop_mode = StopMode::kSuspend;
  service_.Send(key_, stop);
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Attach(&context);
  stream->Write(Hello("token"));
  v1::ServerMessage answer;
  ASSERT_TRUE(stream->Read(&answer));
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.stop().mode(), v1::Stop::MODE_SUSPEND);
  context.TryCancel();
}

TEST_F(WorkerServiceTest, MemorySettingsSentBeforeTheWorkerIsThereReachItOnEveryAttach) {
  WorkerCommand update;
  update.kind = CommandKind::kUpdateMemory;
  update.memory_json = R"({"vram_budget": "10GiB", "ring_size": 1})";
  service_.Send(key_, update);
  for (int attach = 0; attach < 2; ++attach) {
    grpc::ClientContext context;
    const std::unique_ptr<Stream> stream = stub_->Attach(&context);
    stream->Write(Hello("token"));
    v1::ServerMessage answer;
    ASSERT_TRUE(stream->Read(&answer));
    ASSERT_TRUE(stream->Read(&answer));
    EXPECT_EQ(answer.memory().memory().vram_budget(), "10GiB");
    EXPECT_EQ(answer.memory().memory().ring_size(), 1);
    context.TryCancel();
  }
}

TEST_F(WorkerServiceTest, ForgottenAttemptIsOver) {
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Attach(&context);
  stream->Write(Hello("token"));
  v1::ServerMessage answer;
  ASSERT_TRUE(stream->Read(&answer));
  service_.Forget(key_);
  while (stream->Read(&answer)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_EQ(Refusal(Hello("token")), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(WorkerServiceTest, ATokenIsOfNoUseOutsideTheWorkersSession) {
  service_.Forget(key_);
  // Somebody who does not say which process it is, and one of another session.
  service_.Expect({key_, "uid", ToHex(Sha256("token")), /*pid=*/::getsid(0) + 1}, observer_);
  v1::WorkerMessage hello = Hello("token");
  EXPECT_EQ(Refusal(hello), grpc::StatusCode::UNAUTHENTICATED);
  hello.mutable_hello()->set_pid(::getpid());
  hello.mutable_hello()->set_process_start_time(ProcessStartTime(::getpid()));
  hello.mutable_hello()->set_boot_id(BootId());
  EXPECT_EQ(Refusal(hello), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(observer_.waiting(), 0u);
}

TEST_F(WorkerServiceTest, AnAdoptedWorkerRepeatsOnlyWhatNoServerHasStored) {
  service_.Forget(key_);
  service_.Expect({key_, "uid", ToHex(Sha256("token")), /*pid=*/0, /*last_sequence=*/5}, observer_);
  // Asked for before it is there.
  WorkerCommand checkpoint;
  checkpoint.kind = CommandKind::kCheckpoint;
  service_.Send(key_, checkpoint);
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Attach(&context);
  stream->Write(Hello("token"));
  v1::ServerMessage answer;
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.welcome().last_sequence_seen(), 5);
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_TRUE(answer.has_checkpoint());
  EXPECT_TRUE(std::holds_alternative<AttachedUpdate>(observer_.Next().update));
  stream->Write(Warning(5));
  stream->Write(Warning(6));
  EXPECT_EQ(observer_.Next().sequence, 6);
  context.TryCancel();
}

}  // namespace
}  // namespace blockswap::server
