// SPDX-License-Identifier: Apache-2.0
// WorkerService: the message streams of all workers, and the gateway through which the supervisor
// reaches them.
#ifndef BLOCKSWAP_SERVER_RPC_WORKER_SERVICE_H_
#define BLOCKSWAP_SERVER_RPC_WORKER_SERVICE_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "blockswap/v1/worker.grpc.pb.h"
#include "offload/base/mutex.h"
#include "server/supervisor/worker_gateway.h"

namespace blockswap::server {

class WorkerStream;

// One expected worker. Thread safety: safe.
struct WorkerSeat {
  AttemptKey key;
  std::string token_hash;
  int64_t pid = 0;  // whose session the worker is in; 0: any
  base::Mutex mutex;
  AttemptObserver* observer ABSL_GUARDED_BY(mutex) = nullptr;  // null: forgotten
  WorkerStream* stream ABSL_GUARDED_BY(mutex) = nullptr;
  int64_t delivered ABSL_GUARDED_BY(mutex) = 0;     // highest sequence given to the observer
  int64_t acknowledged ABSL_GUARDED_BY(mutex) = 0;  // highest that is stored
  int fruitless_attaches ABSL_GUARDED_BY(mutex) = 0;
  // Repeated on every attach.
  std::optional<WorkerCommand> stop ABSL_GUARDED_BY(mutex);
  std::optional<WorkerCommand> memory ABSL_GUARDED_BY(mutex);
  // Asked for while there was no stream: checkpoint, sample.
  std::set<CommandKind> waiting ABSL_GUARDED_BY(mutex);
};

// Thread safety: safe. Lock order: seat, then stream.
class WorkerServiceImpl final : public v1::WorkerService::CallbackService, public WorkerGateway {
 public:
  explicit WorkerServiceImpl(std::string socket_path) : socket_path_(std::move(socket_path)) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::ServerMessage>* Attach(
      grpc::CallbackServerContext* context) override;

  void Expect(const ExpectedWorker& worker, AttemptObserver& observer) override;
  void Forget(const AttemptKey& key) override;
  void Send(const AttemptKey& key, const WorkerCommand& command) override;
  void Acknowledge(const AttemptKey& key, int64_t sequence) override;
  std::string socket_path() const override { return socket_path_; }

  // The seat that this hello proves to belong to; Unauthenticated otherwise.
  absl::StatusOr<std::shared_ptr<WorkerSeat>> Authenticate(const v1::Hello& hello);
  // InvalidArgument for a protocol that is not ours; the observer of the seat hears of it, too.
  static absl::Status CheckProtocol(const v1::Hello& hello, WorkerSeat& seat);

 private:
  std::shared_ptr<WorkerSeat> Find(const AttemptKey& key);

  const std::string socket_path_;
  base::Mutex mutex_;
  std::map<AttemptKey, std::shared_ptr<WorkerSeat>> seats_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, int>, std::shared_ptr<WorkerSeat>> by_uid_
      ABSL_GUARDED_BY(mutex_);
};

// Deletes itself when the stream is over. The next message is read when the last one is stored: a
// worker cannot fill our memory.
class WorkerStream final : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::ServerMessage> {
 public:
  WorkerStream(WorkerServiceImpl& service, grpc::CallbackServerContext& context);

  // With the seat's lock held, in this order.
  void Write(v1::ServerMessage message);
  void ReadOn(int64_t acknowledged);
  void End(const grpc::Status& status);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void HandleHello();
  void HandleMessage();
  void WriteNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A worker that breaks the protocol loses its stream and its attempt.
  void Fault(const std::string& what);

  WorkerServiceImpl& service_;
  grpc::CallbackServerContext& context_;
  std::shared_ptr<WorkerSeat> seat_;  // set by the first message, then constant
  v1::WorkerMessage reading_;         // between StartRead and OnReadDone gRPC's, else ours

  base::Mutex mutex_;
  std::deque<v1::ServerMessage> to_write_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t waits_for_ ABSL_GUARDED_BY(mutex_) = 0;  // sequence whose storing lets reading go on
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_WORKER_SERVICE_H_
