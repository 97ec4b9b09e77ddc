// SPDX-License-Identifier: Apache-2.0
// The HTTP side of the daemon on the loopback interface: /metrics, /healthz, /readyz and the routes
// it is given.
#ifndef BLOCKSWAP_SERVER_METRICS_HTTP_SERVER_H_
#define BLOCKSWAP_SERVER_METRICS_HTTP_SERVER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/metrics/http_exchange.h"

namespace blockswap::server {

// Who may reach a server. kProbes is for the outside: any interface, any name, and nothing but
// /metrics, /healthz and /readyz, which name no path, tenant or text of a user.
enum class HttpReach { kLoopback, kProbes };

struct HttpContent {
  std::function<std::string()> metrics;
  std::function<bool()> healthy;  // process and scheduler alive
  std::function<bool()> ready;    // accepts jobs
  // Null: everybody on this machine may read. Else everything but the two probes takes what this
  // accepts as the header field Authorization.
  std::function<bool(const std::string& authorization)> authorize;
  std::vector<HttpRoute> routes;  // the longest path that fits a request answers it
  // Who sends or takes nothing for so long is cut.
  std::chrono::milliseconds patience{10000};
};

// Owns: the web server's threads. Only GET and HEAD are answered, and only under a name of this
// machine's loopback interface. One thread serves one connection: at most kMaxStreams streams are
// open at once, more get 503, so that short requests always find a thread.
class HttpServer final {
 public:
  static constexpr int kMaxStreams = 32;

  // `address` is "127.0.0.1:9464" or "[::1]:0". InvalidArgument: not a loopback address, or routes
  // of their own, where `reach` forbids it. FailedPrecondition: the port is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpContent content,
                                                           HttpReach reach = HttpReach::kLoopback);
  // Ends streams and waits for the requests that are being answered.
  ~HttpServer();

  int port() const;
  int open_streams() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_HTTP_SERVER_H_
