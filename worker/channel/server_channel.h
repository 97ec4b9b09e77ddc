// SPDX-License-Identifier: Apache-2.0
// The Reporter of a worker that a server started: one gRPC stream over the attempt's Unix socket that survives server restarts.
#ifndef BLOCKSWAP_WORKER_CHANNEL_SERVER_CHANNEL_H_
#define BLOCKSWAP_WORKER_CHANNEL_SERVER_CHANNEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/channel/reporter.h"

namespace blockswap::worker {

struct ServerChannelOptions {
  std::string socket_path;  // of the server's worker socket
  std::string token;        // proves that we are the attempt the server spawned
  std::string job_uid;
  int attempt = 0;
};

// Owns: a sender and a heartbeat thread, joined by the destructor. Messages are kept until acknowledged and repeated after a
// reconnect (bounded: step batches are merged when the server is away).
absl::StatusOr<std::unique_ptr<Reporter>> ConnectToServer(const ServerChannelOptions& options);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CHANNEL_SERVER_CHANNEL_H_
