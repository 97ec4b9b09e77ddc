// SPDX-License-Identifier: Apache-2.0
// Accepts connections for gRPC and refuses those for which there is no descriptor to spare.
//
// gRPC 1.51's own listener ends for good the first time accept() finds no descriptor left: a flood
// of connections would leave a server that runs its jobs and hears nobody.
#ifndef BLOCKSWAP_SERVER_RPC_CONNECTION_ACCEPTOR_H_
#define BLOCKSWAP_SERVER_RPC_CONNECTION_ACCEPTOR_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {

// One or, where a name stands for several addresses ("localhost"), some.
struct ListeningSockets {
  std::vector<UniqueFd> sockets;
  int port = 0;  // of TCP; the same for all
};

// REQUIRES: the path fits into an address. FailedPrecondition: cannot listen there.
absl::StatusOr<ListeningSockets> ListenOnUnix(const std::string& path);
// "HOST:PORT" as CheckListenAddress wants it. FailedPrecondition: no such name, or the port is
// taken.
absl::StatusOr<ListeningSockets> ListenOnTcp(const std::string& address);

// Owns: the sockets and a thread, "rpc-accept". Thread safety: safe.
class ConnectionAcceptor final {
 public:
  // Takes over the descriptor of a connection; called by the acceptor's thread.
  using Take = std::function<void(int connection)>;
  struct Listener {
    ListeningSockets on;
    Take take;
  };

  // ResourceExhausted: no descriptor is left.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Start(std::vector<Listener> listeners);
  // No `take` is called after it.
  ~ConnectionAcceptor();

 private:
  ConnectionAcceptor(std::vector<Listener> listeners, UniqueFd wake);
  void Run();
  // False: there is no descriptor for another connection now.
  bool Accept(const UniqueFd& socket, const Take& take);

  const std::vector<Listener> listeners_;
  const UniqueFd wake_;
  bool is_refusing_ = false;  // the thread's: said once in the log
  std::thread thread_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_CONNECTION_ACCEPTOR_H_
