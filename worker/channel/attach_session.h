// SPDX-License-Identifier: Apache-2.0
// One life of the stream to the server, from the connection to its end, as a blocking writer and a
// reading callback.
#ifndef BLOCKSWAP_WORKER_CHANNEL_ATTACH_SESSION_H_
#define BLOCKSWAP_WORKER_CHANNEL_ATTACH_SESSION_H_

#include <functional>
#include <memory>
#include <string>

#include "blockswap/v1/worker.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "offload/base/mutex.h"

namespace blockswap::worker {

// Owns: the connection and the call. Thread safety: the public methods belong to one thread; the
// callbacks are called on gRPC's threads. `on_message` runs for every message of the server, one at
// a time; `on_change` after a write has ended and after the stream has broken. Neither may be
// called once Finish has returned.
class AttachSession final : private grpc::ClientBidiReactor<v1::WorkerMessage, v1::ServerMessage> {
 public:
  AttachSession(const std::string& socket_path,
                std::function<void(const v1::ServerMessage&)> on_message,
                std::function<void()> on_change);

  // REQUIRES: CanWrite().
  void Write(v1::WorkerMessage message);
  bool CanWrite() const;
  // The stream takes no more: call Finish.
  bool broken() const;

  // Ends the stream and waits until gRPC is done with it. `graceful` gives the server a second to
  // end it itself.
  grpc::Status Finish(bool graceful);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  const std::function<void(const v1::ServerMessage&)> on_message_;
  const std::function<void()> on_change_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  v1::WorkerMessage outgoing_;  // gRPC's while a write is in flight
  v1::ServerMessage incoming_;  // gRPC's until OnReadDone

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CHANNEL_ATTACH_SESSION_H_
