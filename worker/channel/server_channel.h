// SPDX-License-Identifier: Apache-2.0
// The Reporter of a worker that a server started: one gRPC stream over the attempt's Unix socket
// that survives server restarts.
#ifndef BLOCKSWAP_WORKER_CHANNEL_SERVER_CHANNEL_H_
#define BLOCKSWAP_WORKER_CHANNEL_SERVER_CHANNEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/channel/reporter.h"

namespace blockswap::worker {

struct ServerChannelOptions {
  std::string socket_path;  // of the server's worker socket
  std::string token;        // proves that we are the attempt the server spawned
  std::string job_uid;
  int attempt = 0;
  // Standard output and error are pipes that the server reads: while it is away, what does not fit
  // into them is lost instead of holding training up.
  bool prints_to_server = false;
  absl::Duration connect_timeout = absl::Seconds(10);  // for the first welcome
  absl::Duration exit_timeout = absl::Seconds(5);      // for the acknowledgement of Exiting
};

// Owns: one thread that connects, sends, and beats every two seconds whatever training does; joined
// by the destructor. Messages are kept until acknowledged and repeated after a reconnect (bounded:
// see outbox.h). When the server refuses this attempt for good (a restarted server that gave the
// job away), stop_requested() becomes kNow. Errors: the server's refusal; Unavailable when it does
// not answer in time; InvalidArgument for options that cannot work.
absl::StatusOr<std::unique_ptr<Reporter>> ConnectToServer(const ServerChannelOptions& options);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CHANNEL_SERVER_CHANNEL_H_
