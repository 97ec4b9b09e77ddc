// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/worker_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/text/utf8.h"
#include "server/base/log.h"
#include "server/base/random_text.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/status_conversion.h"
#include "server/supervisor/process_identity.h"

namespace blockswap::server {
namespace {

constexpr int kProtocol = 1;
// A worker that attaches so often without getting a message across (too large, say) never will.
constexpr int kMaxFruitlessAttaches = 10;

}  // namespace

grpc::ServerBidiReactor<v1::WorkerMessage, v1::ServerMessage>* WorkerServiceImpl::Attach(
    grpc::CallbackServerContext* context) {
  return new WorkerStream(*this, *context);
}

void WorkerServiceImpl::Expect(const ExpectedWorker& worker, AttemptObserver& observer) {
  auto seat = std::make_shared<WorkerSeat>();
  seat->key = worker.key;
  seat->token_hash = worker.token_hash;
  seat->pid = worker.pid;
  {
    base::MutexLock lock(seat->mutex);
    seat->observer = &observer;
    seat->delivered = seat->acknowledged = worker.last_sequence;
  }
  base::MutexLock lock(mutex_);
  seats_[worker.key] = seat;
  by_uid_[{worker.job_uid, worker.key.attempt}] = std::move(seat);
}

std::shared_ptr<WorkerSeat> WorkerServiceImpl::Find(const AttemptKey& key) {
  base::MutexLock lock(mutex_);
  const auto found = seats_.find(key);
  return found == seats_.end() ? nullptr : found->second;
}

void WorkerServiceImpl::Forget(const AttemptKey& key) {
  const std::shared_ptr<WorkerSeat> seat = Find(key);
  if (seat == nullptr) return;
  {
    base::MutexLock lock(mutex_);
    seats_.erase(key);
    std::erase_if(by_uid_, [&seat](const auto& entry) { return entry.second == seat; });
  }
  base::MutexLock lock(seat->mutex);
  seat->observer = nullptr;
  if (seat->stream != nullptr) {
    seat->stream->End(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "the attempt is over"));
  }
}

void WorkerServiceImpl::Send(const AttemptKey& key, const WorkerCommand& command) {
  const std::shared_ptr<WorkerSeat> seat = Find(key);
  if (seat == nullptr) return;
  base::MutexLock lock(seat->mutex);
  if (command.kind == CommandKind::kStop) seat->stop = command;
  if (command.kind == CommandKind::kUpdateMemory) seat->memory = command;
  if (seat->stream != nullptr) {
    seat->stream->Write(ToProto(command));
  } else if (command.kind == CommandKind::kCheckpoint || command.kind == CommandKind::kSample) {
    seat->waiting.insert(command.kind);
  }
}

void WorkerServiceImpl::Acknowledge(const AttemptKey& key, int64_t sequence) {
  const std::shared_ptr<WorkerSeat> seat = Find(key);
  if (seat == nullptr) return;
  base::MutexLock lock(seat->mutex);
  seat->acknowledged = std::max(seat->acknowledged, sequence);
  seat->fruitless_attaches = 0;
  if (seat->stream == nullptr) return;
  v1::ServerMessage message;
  message.set_acknowledged_sequence(seat->acknowledged);
  seat->stream->Write(std::move(message));
  seat->stream->ReadOn(seat->acknowledged);
}

absl::StatusOr<std::shared_ptr<WorkerSeat>> WorkerServiceImpl::Authenticate(
    const v1::Hello& hello) {
  base::MutexLock lock(mutex_);
  const auto found = by_uid_.find({hello.job_uid(), hello.attempt()});
  // The same answer whatever is wrong: nothing to learn from it.
  if (found == by_uid_.end() ||
      !EqualsInConstantTime(found->second->token_hash, ToHex(Sha256(hello.token())))) {
    return absl::UnauthenticatedError("no such attempt, or not its token");
  }
  // A token that got into other hands is of no use to them: the worker, or a wrapper's child in its
  // session, says who it is, and the kernel who that is.
  if (found->second->pid != 0 &&
      !IsInSession(hello.pid(), hello.process_start_time(), hello.boot_id(), found->second->pid)) {
    return absl::UnauthenticatedError("no such attempt, or not its token");
  }
  return found->second;
}

absl::Status WorkerServiceImpl::CheckProtocol(const v1::Hello& hello, WorkerSeat& seat) {
  if (hello.protocol() == kProtocol) return absl::OkStatus();
  const std::string what =
      absl::StrCat("the worker speaks protocol ", hello.protocol(), " (",
                   proto::ToValidUtf8(hello.build().substr(0, 64)), "), this server ", kProtocol,
                   ": blockswapd and blockswap-worker must be of one release");
  base::MutexLock lock(seat.mutex);
  // Nothing will come of this attempt: whoever follows it need not wait for a clock to run out.
  if (seat.observer != nullptr) seat.observer->OnUpdate(seat.key, 0, DetachedUpdate{what});
  return absl::InvalidArgumentError(what);
}

WorkerStream::WorkerStream(WorkerServiceImpl& service, grpc::CallbackServerContext& context)
    : service_(service), context_(context) {
  // Locked for the callbacks: they see what was set up here.
  base::MutexLock lock(mutex_);
  StartRead(&reading_);
}

void WorkerStream::Write(v1::ServerMessage message) {
  base::MutexLock lock(mutex_);
  if (over_) return;
  // Of acknowledgements that wait only the latest matters.
  if (!to_write_.empty() && message.body_case() == v1::ServerMessage::kAcknowledgedSequence &&
      to_write_.back().body_case() == v1::ServerMessage::kAcknowledgedSequence &&
      (to_write_.size() > 1 || !is_writing_)) {
    to_write_.back() = std::move(message);
  } else {
    to_write_.push_back(std::move(message));
  }
  WriteNextLocked();
}

void WorkerStream::WriteNextLocked() {
  if (is_writing_ || over_ || to_write_.empty()) return;
  is_writing_ = true;
  StartWrite(&to_write_.front());
}

void WorkerStream::OnWriteDone(bool ok) {
  base::MutexLock lock(mutex_);
  is_writing_ = false;
  if (!ok) return;  // reading fails, too, and ends the stream
  to_write_.pop_front();
  WriteNextLocked();
}

void WorkerStream::ReadOn(int64_t acknowledged) {
  base::MutexLock lock(mutex_);
  if (over_ || waits_for_ == 0 || acknowledged < waits_for_) return;
  waits_for_ = 0;
  StartRead(&reading_);
}

void WorkerStream::End(const grpc::Status& status) {
  base::MutexLock lock(mutex_);
  if (over_) return;
  over_ = true;
  Finish(status);
  // A write that the worker does not take, or a read that never comes, must not hold the end up.
  context_.TryCancel();
}

void WorkerStream::OnReadDone(bool ok) {
  if (!ok) {
    base::MutexLock lock(mutex_);
    if (!over_) {
      over_ = true;
      Finish(grpc::Status::OK);
    }
    return;
  }
  bool is_first = false;
  {
    base::MutexLock lock(mutex_);
    is_first = seat_ == nullptr;
  }
  if (is_first) {
    HandleHello();
  } else {
    HandleMessage();
  }
}

void WorkerStream::HandleHello() {
  auto seat = reading_.has_hello()
                  ? service_.Authenticate(reading_.hello())
                  : absl::InvalidArgumentError("the first message must be a hello");
  absl::Status admitted = seat.status();
  if (admitted.ok()) admitted = WorkerServiceImpl::CheckProtocol(reading_.hello(), **seat);
  if (!admitted.ok()) {
    LogWarning("worker stream refused: {}", std::string(admitted.message()));
    base::MutexLock lock(mutex_);
    over_ = true;
    Finish(ToGrpcStatus(admitted));
    return;
  }
  {
    base::MutexLock lock(mutex_);
    seat_ = *std::move(seat);
  }
  bool fruitless = false;
  {
    base::MutexLock lock(seat_->mutex);
    if (seat_->observer == nullptr) {
      End(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "the attempt is over"));
      return;
    }
    // The worker gave the old stream up before we noticed.
    if (seat_->stream != nullptr) {
      seat_->stream->End(grpc::Status(grpc::StatusCode::ABORTED, "replaced by a newer stream"));
    }
    seat_->stream = this;
    fruitless = ++seat_->fruitless_attaches > kMaxFruitlessAttaches;
    v1::ServerMessage welcome;
    welcome.mutable_welcome()->set_last_sequence_seen(seat_->acknowledged);
    Write(std::move(welcome));
    if (seat_->memory.has_value()) Write(ToProto(*seat_->memory));
    for (const CommandKind kind : std::exchange(seat_->waiting, {})) {
      WorkerCommand command;
      command.kind = kind;
      Write(ToProto(command));
    }
    if (seat_->stop.has_value()) Write(ToProto(*seat_->stop));
    seat_->observer->OnUpdate(seat_->key, 0,
                              AttachedUpdate{reading_.hello().build(), reading_.hello().pid()});
  }
  if (fruitless) {
    Fault("the worker attaches again and again without getting a message across");
    return;
  }
  StartRead(&reading_);
}

void WorkerStream::HandleMessage() {
  auto update = reading_.has_hello() ? absl::InvalidArgumentError("a second hello on one stream")
                                     : FromProto(reading_);
  if (!update.ok()) {
    Fault(std::string(update.status().message()));
    return;
  }
  const int64_t sequence = reading_.sequence();
  base::MutexLock lock(seat_->mutex);
  if (seat_->observer == nullptr) return;
  if (sequence != 0 && sequence > seat_->acknowledged) {
    base::MutexLock stream_lock(mutex_);
    waits_for_ = sequence;
  }
  if (sequence == 0 || sequence > seat_->delivered) {
    seat_->delivered = std::max(seat_->delivered, sequence);
    seat_->observer->OnUpdate(seat_->key, sequence, *std::move(update));
  }
  base::MutexLock stream_lock(mutex_);
  // Repeated and stored long ago, or in need of no storing: read on at once.
  if (waits_for_ == 0 && !over_) StartRead(&reading_);
}

void WorkerStream::Fault(const std::string& what) {
  LogWarning("worker of job {}: {}", seat_->key.job_id, what);
  base::MutexLock lock(seat_->mutex);
  if (seat_->observer != nullptr) seat_->observer->OnUpdate(seat_->key, 0, DetachedUpdate{what});
  End(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, what));
}

void WorkerStream::OnCancel() {
  base::MutexLock lock(mutex_);
  if (over_) return;
  over_ = true;
  Finish(grpc::Status::CANCELLED);
}

void WorkerStream::OnDone() {
  std::shared_ptr<WorkerSeat> seat;
  {
    // An order between the callbacks that does not rest on gRPC's alone.
    base::MutexLock lock(mutex_);
    seat = seat_;
  }
  if (seat != nullptr) {
    base::MutexLock lock(seat->mutex);
    if (seat->stream == this) {
      seat->stream = nullptr;
      if (seat->observer != nullptr) seat->observer->OnUpdate(seat->key, 0, DetachedUpdate{});
    }
  }
  delete this;
}

}  // namespace blockswap::server
