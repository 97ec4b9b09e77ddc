// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/server_channel.h"

#include <pthread.h>
#include <signal.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/text/utf8.h"
#include "worker/channel/attach_session.h"
#include "worker/channel/outbox.h"
#include "worker/channel/output_blocking.h"
#include "worker/channel/process_identity.h"
#include "worker/channel/wire_messages.h"
#include "worker/config/spec_validation.h"

namespace blockswap::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProtocol = 1;
constexpr std::chrono::milliseconds kFirstBackoff(50);
constexpr std::chrono::milliseconds kLongestBackoff(2000);
constexpr std::chrono::seconds kHeartbeatPeriod(2);
// A server that takes the connection but says nothing for so long is given up.
constexpr std::chrono::seconds kWelcomeTimeout(10);
// Watchers get at most four words of progress a second; more would only fill the store's log.
constexpr std::chrono::milliseconds kLoadInterval(250);
// Longest wait that does not ask again whether the stream still stands.
constexpr std::chrono::seconds kLongestWait(1);

// The server does not know us or does not want us: asking again changes nothing.
bool IsRefusal(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNIMPLEMENTED:
      return true;
    default:
      return false;
  }
}

absl::Status ToAbslStatus(const grpc::Status& status, const std::string& socket_path) {
  const std::string message = absl::StrCat("server at ", socket_path, ": ", status.error_message());
  // The code numbers of the two are the same by design.
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

StopRequest ToStopRequest(v1::Stop::Mode mode) {
  switch (mode) {
    case v1::Stop::MODE_SUSPEND:
      return StopRequest::kSuspend;
    case v1::Stop::MODE_NOW:
      return StopRequest::kNow;
    default:
      return StopRequest::kCancel;
  }
}

class ServerChannel final : public Reporter {
 public:
  explicit ServerChannel(const ServerChannelOptions& options);
  ~ServerChannel() override;

  // Waits for the server's first welcome.
  absl::Status AwaitWelcome();

  void Phase(absl::string_view phase) override { Send(PhaseMessage(phase)); }
  void LoadProgress(int64_t bytes_done, int64_t bytes_total) override;
  void Ready(const ReadyReport& ready) override { Send(ToMessage(ready)); }
  void Step(const StepReport& step) override { Send(ToMessage(step)); }
  void Memory(const MemoryReport& memory) override { Send(ToMessage(memory)); }
  void Replanned(const PlanReport& plan) override { Send(ToMessage(plan)); }
  void CheckpointCommitted(int64_t step, const std::string& directory,
                           const std::string& manifest_sha256, int64_t bytes,
                           double seconds) override;
  void SampleReady(int64_t step, const std::string& file) override;
  void Warning(absl::string_view reason, const std::string& message) override {
    Send(WarningMessage(reason, message));
  }
  void Exiting(const ExitReport& report) override;

  // Relaxed: each is a lone flag that guards no other data.
  StopRequest stop_requested() override { return stop_.load(std::memory_order_relaxed); }
  bool TakeCheckpointRequest() override {
    return checkpoint_.exchange(false, std::memory_order_relaxed);
  }
  bool TakeSampleRequest() override { return sample_.exchange(false, std::memory_order_relaxed); }
  std::optional<MemoryConfig> TakeMemoryUpdate() override {
    base::MutexLock lock(mutex_);
    return std::exchange(memory_update_, std::nullopt);
  }

 private:
  void Send(v1::WorkerMessage message);
  void Run();
  // Runs one stream until it breaks, is refused, or the channel closes.
  grpc::Status ServeStream(AttachSession* session);
  void OnServerMessage(const v1::ServerMessage& message);
  void OnStreamChange();
  v1::WorkerMessage HelloMessage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What to write now, if anything.
  std::optional<v1::WorkerMessage> NextMessageLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RequestStop(StopRequest request);

  const ServerChannelOptions options_;
  const ProcessIdentity identity_;
  Clock::time_point next_load_progress_{};  // the trainer's thread only

  base::Mutex mutex_;
  base::CondVar changed_;
  Outbox outbox_ ABSL_GUARDED_BY(mutex_);
  bool hello_due_ ABSL_GUARDED_BY(mutex_) = false;
  bool welcome_ ABSL_GUARDED_BY(mutex_) = false;  // on the present stream
  bool ever_welcome_ ABSL_GUARDED_BY(mutex_) = false;
  bool stream_changed_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::time_point next_heartbeat_ ABSL_GUARDED_BY(mutex_);

  std::optional<MemoryConfig> memory_update_ ABSL_GUARDED_BY(mutex_);

  std::atomic<StopRequest> stop_{StopRequest::kNone};
  std::atomic<bool> checkpoint_{false};
  std::atomic<bool> sample_{false};
  std::thread thread_;
};

ServerChannel::ServerChannel(const ServerChannelOptions& options)
    : options_(options), identity_(ThisProcess()), thread_([this] { Run(); }) {}

ServerChannel::~ServerChannel() {
  {
    base::MutexLock lock(mutex_);
    closing_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

absl::Status ServerChannel::AwaitWelcome() {
  const Clock::time_point deadline =
      Clock::now() + absl::ToChronoNanoseconds(options_.connect_timeout);
  base::MutexLock lock(mutex_);
  while (!ever_welcome_ && !refused_) {
    if (!changed_.WaitUntil(mutex_, deadline) && !ever_welcome_ && !refused_) {
      return absl::UnavailableError(absl::StrCat("no answer from the server within ",
                                                 absl::FormatDuration(options_.connect_timeout),
                                                 ": ", last_error_.message()));
    }
  }
  return refused_ ? last_error_ : absl::OkStatus();
}

void ServerChannel::Send(v1::WorkerMessage message) {
  base::MutexLock lock(mutex_);
  outbox_.Push(std::move(message));
  changed_.SignalAll();
}

void ServerChannel::LoadProgress(int64_t bytes_done, int64_t bytes_total) {
  const Clock::time_point now = Clock::now();
  if (bytes_done < bytes_total && now < next_load_progress_) return;
  next_load_progress_ = now + kLoadInterval;
  Send(LoadMessage(bytes_done, bytes_total));
}

void ServerChannel::CheckpointCommitted(int64_t step, const std::string& directory,
                                        const std::string& manifest_sha256, int64_t bytes,
                                        double seconds) {
  v1::WorkerMessage message;
  v1::CheckpointCommitted* out = message.mutable_checkpoint();
  out->set_step(step);
  out->set_directory(proto::ToValidUtf8(directory));
  out->set_manifest_sha256(proto::ToValidUtf8(manifest_sha256));
  out->set_bytes(bytes);
  out->set_seconds(seconds);
  Send(std::move(message));
}

void ServerChannel::SampleReady(int64_t step, const std::string& file) {
  v1::WorkerMessage message;
  message.mutable_sample()->set_step(step);
  message.mutable_sample()->set_file(proto::ToValidUtf8(file));
  Send(std::move(message));
}

void ServerChannel::Exiting(const ExitReport& report) {
  Send(ToMessage(report));
  const Clock::time_point deadline =
      Clock::now() + absl::ToChronoNanoseconds(options_.exit_timeout);
  base::MutexLock lock(mutex_);
  while (!outbox_.empty() && !refused_ && changed_.WaitUntil(mutex_, deadline)) {
  }
}

void ServerChannel::RequestStop(StopRequest request) {
  StopRequest current = stop_.load(std::memory_order_relaxed);
  // "Now" is never taken back; between cancel and suspend the latest word counts.
  while (current != StopRequest::kNow &&
         !stop_.compare_exchange_weak(current, request, std::memory_order_relaxed)) {
  }
}

void ServerChannel::OnServerMessage(const v1::ServerMessage& message) {
  base::MutexLock lock(mutex_);
  switch (message.body_case()) {
    case v1::ServerMessage::kWelcome:
      outbox_.Acknowledge(message.welcome().last_sequence_seen());
      outbox_.Rewind();
      welcome_ = true;
      ever_welcome_ = true;
      if (options_.prints_to_server) SetOutputBlocking(true);
      next_heartbeat_ = Clock::now() + kHeartbeatPeriod;
      break;
    case v1::ServerMessage::kAcknowledgedSequence:
      outbox_.Acknowledge(message.acknowledged_sequence());
      break;
    case v1::ServerMessage::kCheckpoint:
      checkpoint_.store(true, std::memory_order_relaxed);
      break;
    case v1::ServerMessage::kSample:
      sample_.store(true, std::memory_order_relaxed);
      break;
    case v1::ServerMessage::kStop:
      RequestStop(ToStopRequest(message.stop().mode()));
      break;
    case v1::ServerMessage::kMemory: {
      // The server has checked it; what a newer server allows and this worker does not is left out.
      absl::StatusOr<MemoryConfig> memory = ReadMemorySpec(message.memory().memory());
      if (memory.ok()) memory_update_ = *std::move(memory);
      break;
    }
    case v1::ServerMessage::kPing:
      next_heartbeat_ = Clock::now();
      break;
    case v1::ServerMessage::BODY_NOT_SET:
      break;  // a newer server's message
  }
  changed_.SignalAll();
}

void ServerChannel::OnStreamChange() {
  base::MutexLock lock(mutex_);
  stream_changed_ = true;
  changed_.SignalAll();
}

v1::WorkerMessage ServerChannel::HelloMessage() {
  v1::WorkerMessage message;
  v1::Hello* hello = message.mutable_hello();
  hello->set_protocol(kProtocol);
  hello->set_build(BLOCKSWAP_VERSION);
  hello->set_pid(identity_.pid);
  hello->set_process_start_time(identity_.start_time);
  hello->set_boot_id(identity_.boot_id);
  hello->set_job_uid(options_.job_uid);
  hello->set_attempt(options_.attempt);
  hello->set_token(options_.token);
  hello->set_last_sequence(outbox_.last_sequence());
  return message;
}

std::optional<v1::WorkerMessage> ServerChannel::NextMessageLocked() {
  if (hello_due_) {
    hello_due_ = false;
    return HelloMessage();
  }
  if (!welcome_) return std::nullopt;
  if (Clock::now() >= next_heartbeat_) {
    next_heartbeat_ = Clock::now() + kHeartbeatPeriod;
    v1::WorkerMessage message;
    message.mutable_heartbeat()->set_monotonic_nanos(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
            .count());
    return message;
  }
  const v1::WorkerMessage* next = outbox_.TakeNext();
  return next == nullptr ? std::nullopt : std::make_optional(*next);
}

grpc::Status ServerChannel::ServeStream(AttachSession* session) {
  const Clock::time_point welcome_deadline = Clock::now() + kWelcomeTimeout;
  while (!session->broken()) {
    const bool can_write = session->CanWrite();
    std::optional<v1::WorkerMessage> message;
    {
      base::MutexLock lock(mutex_);
      if (closing_) break;
      if (!welcome_ && Clock::now() >= welcome_deadline) return session->Finish(/*graceful=*/false);
      if (can_write) message = NextMessageLocked();
      if (!message.has_value() && !stream_changed_) {
        // While a write is in flight a due heartbeat must not make this loop spin.
        const bool heartbeat_counts = welcome_ && can_write;
        changed_.WaitUntil(mutex_,
                           heartbeat_counts ? next_heartbeat_ : Clock::now() + kLongestWait);
      }
      stream_changed_ = false;
    }
    if (message.has_value()) session->Write(*std::move(message));
  }
  return session->Finish(/*graceful=*/true);
}

void ServerChannel::Run() {
  pthread_setname_np(pthread_self(), "bs-channel");
  // Signals are for the thread that trains, except the one that asks every thread for its stack.
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGQUIT);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);

  std::chrono::milliseconds backoff = kFirstBackoff;
  while (true) {
    {
      base::MutexLock lock(mutex_);
      if (closing_) return;
      hello_due_ = true;
      welcome_ = false;
      stream_changed_ = false;
    }
    grpc::Status status;
    {
      AttachSession session(
          options_.socket_path,
          [this](const v1::ServerMessage& message) { OnServerMessage(message); },
          [this] { OnStreamChange(); });
      status = ServeStream(&session);
    }
    base::MutexLock lock(mutex_);
    if (welcome_) backoff = kFirstBackoff;
    welcome_ = false;
    if (options_.prints_to_server) SetOutputBlocking(false);
    last_error_ = ToAbslStatus(status, options_.socket_path);
    if (closing_) return;
    if (IsRefusal(status.error_code())) {
      refused_ = true;
      // Another attempt may own the outputs by now: end without writing.
      RequestStop(StopRequest::kNow);
      changed_.SignalAll();
      return;
    }
    const Clock::time_point deadline = Clock::now() + backoff;
    while (!closing_ && changed_.WaitUntil(mutex_, deadline)) {
    }
    backoff = std::min(backoff * 2, kLongestBackoff);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reporter>> ConnectToServer(const ServerChannelOptions& options) {
  if (options.socket_path.empty() || options.token.empty() || options.job_uid.empty()) {
    return absl::InvalidArgumentError(
        "a server channel needs a socket path, a token and a job uid");
  }
  constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
  if (options.socket_path.size() > kMaxPath) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path too long: ", options.socket_path.size(),
                     " bytes, the system allows ", kMaxPath, ": ", options.socket_path));
  }
  auto channel = std::make_unique<ServerChannel>(options);
  absl::Status status = channel->AwaitWelcome();
  if (!status.ok()) return status;
  return channel;
}

}  // namespace blockswap::worker
