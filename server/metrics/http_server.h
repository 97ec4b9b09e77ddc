// SPDX-License-Identifier: Apache-2.0
// The HTTP side of the daemon: /metrics, /healthz and /readyz on the loopback interface.
#ifndef BLOCKSWAP_SERVER_METRICS_HTTP_SERVER_H_
#define BLOCKSWAP_SERVER_METRICS_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace blockswap::server {

struct HttpContent {
  std::function<std::string()> metrics;
  std::function<bool()> healthy;  // process and scheduler alive
  std::function<bool()> ready;    // accepts jobs
};

// Owns: the web server's threads. Only GET and HEAD are answered.
class HttpServer final {
 public:
  // `address` is "127.0.0.1:9464" or "[::1]:0". Only loopback addresses are accepted.
  // FailedPrecondition: the port is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           HttpContent content);
  ~HttpServer();

  int port() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_HTTP_SERVER_H_
