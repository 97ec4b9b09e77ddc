// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/attach_session.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace blockswap::worker {
namespace {

constexpr int kMaxMessageBytes = 1 << 20;
constexpr std::chrono::seconds kGracefulEnd(1);

std::shared_ptr<grpc::Channel> Connect(const std::string& socket_path) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // A connection of its own for every session: a shared one would still be in the back-off of the
  // last failure.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(absl::StrCat("unix:", socket_path),
                                   grpc::experimental::LocalCredentials(UDS), arguments);
}

}  // namespace

AttachSession::AttachSession(const std::string& socket_path,
                             std::function<void(const v1::ServerMessage&)> on_message,
                             std::function<void()> on_change)
    : on_message_(std::move(on_message)),
      on_change_(std::move(on_change)),
      stub_(v1::WorkerService::NewStub(Connect(socket_path))) {
  stub_->async()->Attach(&context_, this);
  // Held until Finish: writes start outside gRPC's callbacks, and OnDone must not come before the
  // last of them.
  AddHold();
  StartRead(&incoming_);
  StartCall();
}

bool AttachSession::CanWrite() const {
  base::MutexLock lock(mutex_);
  return !writing_ && !broken_;
}

bool AttachSession::broken() const {
  base::MutexLock lock(mutex_);
  return broken_;
}

void AttachSession::Write(v1::WorkerMessage message) {
  {
    base::MutexLock lock(mutex_);
    writing_ = true;
  }
  outgoing_ = std::move(message);
  StartWrite(&outgoing_);
}

void AttachSession::OnWriteDone(bool ok) {
  {
    base::MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) broken_ = true;
    changed_.SignalAll();
  }
  on_change_();
}

void AttachSession::OnReadDone(bool ok) {
  if (ok) {
    on_message_(incoming_);
    StartRead(&incoming_);
    return;
  }
  {
    base::MutexLock lock(mutex_);
    broken_ = true;
    changed_.SignalAll();
  }
  on_change_();
}

void AttachSession::OnDone(const grpc::Status& status) {
  base::MutexLock lock(mutex_);
  done_ = true;
  status_ = status;
  changed_.SignalAll();
}

grpc::Status AttachSession::Finish(bool graceful) {
  if (graceful) {
    const auto deadline = std::chrono::steady_clock::now() + kGracefulEnd;
    bool may_end_writes = false;
    {
      base::MutexLock lock(mutex_);
      while (writing_ && !broken_ && changed_.WaitUntil(mutex_, deadline)) {
      }
      may_end_writes = !writing_ && !broken_;
    }
    if (may_end_writes) StartWritesDone();
    base::MutexLock lock(mutex_);
    while (!broken_ && changed_.WaitUntil(mutex_, deadline)) {
    }
  }
  // Without effect on a call that has ended: its status stays.
  if (!broken()) context_.TryCancel();
  RemoveHold();
  base::MutexLock lock(mutex_);
  while (!done_) changed_.Wait(mutex_);
  return status_;
}

}  // namespace blockswap::worker
