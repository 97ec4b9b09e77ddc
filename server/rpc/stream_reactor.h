// SPDX-License-Identifier: Apache-2.0
// The life of one streaming call: what gRPC and the hub call, in whatever order, until it is over.
#ifndef BLOCKSWAP_SERVER_RPC_STREAM_REACTOR_H_
#define BLOCKSWAP_SERVER_RPC_STREAM_REACTOR_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"
#include "server/base/reason.h"
#include "server/events/event_hub.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {

// What to write is the derived class's; one write runs at a time. Who starts one counts it in
// RpcContext::streams. Deletes itself when the call is over. Thread safety: safe; called by gRPC
// and by the hub.
template <typename Message>
class StreamReactor : public grpc::ServerWriteReactor<Message> {
 public:
  void OnWriteDone(bool ok) final {
    base::MutexLock lock(mutex_);
    is_writing_ = false;
    if (!ok && !over_) {
      over_ = true;
      this->Finish(grpc::Status::CANCELLED);
      return;
    }
    WriteNextLocked();
  }

  void OnCancel() final {
    base::MutexLock lock(mutex_);
    if (over_) return;
    over_ = true;
    this->Finish(grpc::Status::CANCELLED);
  }

  void OnDone() final {
    std::shared_ptr<Link> link;
    {
      // Start left this lock after all was set up: an order that does not rest on gRPC's alone.
      base::MutexLock lock(mutex_);
      link = link_;
    }
    {
      base::MutexLock lock(link->mutex);
      link->stream = nullptr;
    }
    rpc_.streams.fetch_sub(1, std::memory_order_relaxed);
    if (is_counted_) rpc_.limits.EndStream(caller_);
    rpc_.metrics.WatchStreams(kind_, -1);
    delete this;
  }

 protected:
  // `kind` is the label of the stream's metrics; a literal.
  StreamReactor(RpcContext& rpc, const char* kind, Identity caller)
      : rpc_(rpc), caller_(std::move(caller)), kind_(kind) {
    rpc_.metrics.WatchStreams(kind_, 1);
  }

  // From here on the hub's calls arrive, once the sink is subscribed.
  std::shared_ptr<EventSink> Connect() {
    base::MutexLock lock(link_->mutex);
    link_->stream = this;
    return link_;
  }

  virtual void Receive(const std::vector<SharedEvent>& events) = 0;
  virtual void Tick(SteadyTime now) = 0;
  virtual void ShutDown() = 0;
  virtual void WriteNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;

  // What a derived class asks first when it starts. ResourceExhausted TOO_MANY_STREAMS.
  absl::Status CountForTenant() {
    const absl::Status counted = rpc_.limits.BeginStream(caller_);
    is_counted_ = counted.ok();
    return counted;
  }

  // Called at each tick: a token that is revoked or expires ends the streams that it opened.
  bool EndIfRevokedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (over_ || rpc_.auth.IsValid(caller_)) return false;
    over_ = true;
    this->Finish(ToGrpcStatus(WithReason(
        absl::UnauthenticatedError("the token of this stream was revoked or has expired"),
        "TOKEN_INVALID")));
    return true;
  }

  RpcContext& rpc_;
  const Identity caller_;
  base::Mutex mutex_;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called, or must not be any more

 private:
  // Survives the stream: the hub may hold it while the call ends.
  struct Link final : public EventSink {
    void OnEvents(const std::vector<SharedEvent>& events) override {
      base::MutexLock lock(mutex);
      if (stream != nullptr) stream->Receive(events);
    }
    void OnTick(SteadyTime now) override {
      base::MutexLock lock(mutex);
      if (stream != nullptr) stream->Tick(now);
    }
    void OnShutdown() override {
      base::MutexLock lock(mutex);
      if (stream != nullptr) stream->ShutDown();
    }
    base::Mutex mutex;
    StreamReactor* stream ABSL_GUARDED_BY(mutex) = nullptr;
  };

  bool is_counted_ = false;  // before the first event, and after the last
  const char* const kind_;
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_STREAM_REACTOR_H_
