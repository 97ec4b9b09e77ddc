// SPDX-License-Identifier: Apache-2.0
// The two gRPC servers of the daemon: one for clients, one for workers, each on a Unix socket of
// its own.
#ifndef BLOCKSWAP_SERVER_RPC_RPC_SERVER_H_
#define BLOCKSWAP_SERVER_RPC_RPC_SERVER_H_

#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace blockswap::server {

struct RpcServerOptions {
  std::string socket_path;
  int max_receive_bytes = 4 << 20;
  bool offers_health = true, offers_reflection = true;
};

// Thread safety: safe. The services must outlive it.
class RpcServer final {
 public:
  // The socket is 0600. InvalidArgument: path too long; FailedPrecondition: cannot listen.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options, const std::vector<grpc::Service*>& services);
  ~RpcServer();

  // Clients that watch health see it before the connection goes.
  void SetServing(bool serving);
  // Calls that are still open at the deadline are cut.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  RpcServer(std::unique_ptr<grpc::Server> server, std::string socket_path);
  std::unique_ptr<grpc::Server> server_;
  std::string socket_path_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_RPC_SERVER_H_
