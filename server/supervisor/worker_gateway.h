// SPDX-License-Identifier: Apache-2.0
// How the launcher reaches a worker's message stream without knowing the transport.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_WORKER_GATEWAY_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_WORKER_GATEWAY_H_

#include <string>

#include "server/supervisor/worker_launcher.h"
#include "server/supervisor/worker_update.h"

namespace blockswap::server {

// Whose stream is awaited.
struct ExpectedWorker {
  AttemptKey key;
  std::string job_uid;
  std::string token_hash;  // SHA-256, in hexadecimal digits
  int64_t pid = 0;         // of the process that was started; 0: any
  // Of a worker that an earlier server started: its last message that was stored.
  int64_t last_sequence = 0;
};

// Thread safety: safe.
class WorkerGateway {
 public:
  virtual ~WorkerGateway() = default;
  // From now on a stream of that process's session that says this uid, attempt and token belongs to
  // the attempt.
  virtual void Expect(const ExpectedWorker& worker, AttemptObserver& observer) = 0;
  // Ends the stream; the observer is not called any more when this returns.
  virtual void Forget(const AttemptKey& key) = 0;
  // Kept and sent on attach when the worker is not there yet.
  virtual void Send(const AttemptKey& key, const WorkerCommand& command) = 0;
  virtual void Acknowledge(const AttemptKey& key, int64_t sequence) = 0;
  virtual std::string socket_path() const = 0;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_WORKER_GATEWAY_H_
