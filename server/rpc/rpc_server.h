// SPDX-License-Identifier: Apache-2.0
// The gRPC servers of the daemon: for clients on a Unix socket and, where it is asked for, on TCP
// with TLS; for workers on a Unix socket of their own.
#ifndef BLOCKSWAP_SERVER_RPC_RPC_SERVER_H_
#define BLOCKSWAP_SERVER_RPC_RPC_SERVER_H_

#include <grpcpp/server.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/auth/authenticator.h"
#include "server/auth/tls_files.h"
#include "server/metrics/call_metrics.h"
#include "server/rpc/connection_acceptor.h"

namespace blockswap::server {

struct TcpListener {
  std::string address;  // "0.0.0.0:7543", "[::1]:0"; empty: none
  TlsPaths tls;         // files that change together, see TlsFiles
  bool requires_client_certificate = false;
  // gRPC reads the files again after so long.
  std::chrono::seconds refresh{5};
};

struct RpcServerOptions {
  std::string socket_path;
  unsigned int socket_mode = 0600;
  int64_t socket_group = -1;  // of the socket; -1: the server's own
  TcpListener tcp;
  // Decides who may use health and reflection over TCP; our own services have their guard. Needed
  // with a TCP listener.
  const Authenticator* auth = nullptr;
  // Told of callers that were refused there; outlives the server, called by its threads.
  std::function<void(const absl::Status&)> on_refused;
  int max_receive_bytes = 4 << 20;
  bool offers_health = true, offers_reflection = true;
  CallMetrics* calls = nullptr;  // counts the calls, when given; outlives the server
  // A peer from which nothing came for so long is asked whether it is there, and its connection and
  // streams end when it does not answer in time: a machine that vanished sends no farewell.
  std::chrono::milliseconds keepalive{60000}, keepalive_timeout{20000};
  // From accepting a connection to its first words of HTTP/2, TLS included.
  std::chrono::milliseconds handshake_timeout{20000};
};

// "blockswapd.example:7543" or "[::1]:7543". InvalidArgument says what is wrong.
absl::Status CheckListenAddress(const std::string& address);

// Thread safety: safe. The services must outlive it.
class RpcServer final {
 public:
  // InvalidArgument: path too long, bad address; FailedPrecondition: cannot listen.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options, const std::vector<grpc::Service*>& services);
  ~RpcServer();

  // Of the TCP listener; 0 without one.
  int tcp_port() const { return tcp_port_; }
  // Clients that watch health see it before the connection goes.
  void SetServing(bool serving);
  // Calls that are still open at the deadline are cut.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  RpcServer(std::unique_ptr<grpc::Server> server, std::unique_ptr<ConnectionAcceptor> acceptor,
            std::string socket_path, int tcp_port);
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // until Shutdown
  std::string socket_path_;
  const int tcp_port_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_RPC_SERVER_H_
