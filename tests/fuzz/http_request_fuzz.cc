// SPDX-License-Identifier: Apache-2.0
// The bytes of an HTTP request, through a real socket to the web server: it must answer the next
// request as before, whatever came.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "server/metrics/http_server.h"

namespace blockswap::server {
namespace {

constexpr int kPatienceMs = 20000;

std::unique_ptr<HttpServer> StartServer() {
  std::signal(SIGPIPE, SIG_IGN);
  HttpContent content;
  content.metrics = [] { return std::string("some_metric 1\n"); };
  content.healthy = content.ready = [] { return true; };
  content.routes = {{"/api/v1/",
                     [](const HttpRequest& request) {
                       HttpResponse response;
                       response.body = request.path;
                       for (const auto& [name, value] : request.query)
                         response.body += name + value;
                       return response;
                     },
                     nullptr}};
  auto server = HttpServer::Start("127.0.0.1:0", std::move(content));
  if (!server.ok()) std::abort();
  return *std::move(server);
}

// What comes back until the server closes; the request ends with ours closing, so nothing waits.
std::string Exchange(int port, const std::string& request) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    // The server may close before it has read all: what it says then is in the answer.
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) < 0) answer = "";
    shutdown(fd, SHUT_WR);
    char buffer[4096];
    pollfd ready{fd, POLLIN, 0};
    while (poll(&ready, 1, kPatienceMs) > 0) {
      const ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
      if (got <= 0) break;
      answer.append(buffer, static_cast<size_t>(got));
    }
  }
  close(fd);
  return answer;
}

}  // namespace
}  // namespace blockswap::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using blockswap::server::Exchange;
  static const auto* server = blockswap::server::StartServer().release();
  const std::string answer =
      Exchange(server->port(), std::string(reinterpret_cast<const char*>(data), size));
  // A writing method is never a success.
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const char* method : {"POST ", "PUT ", "DELETE ", "PATCH "}) {
    if (absl::StartsWith(text, method) && absl::StartsWith(answer, "HTTP/1.1 200")) std::abort();
  }
  static int count = 0;
  if (++count % 16 == 0) {
    const std::string health =
        Exchange(server->port(), "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    if (!absl::StartsWith(health, "HTTP/1.1 200")) {
      std::fprintf(stderr, "not healthy any more: %s\n", health.c_str());
      std::abort();
    }
  }
  return 0;
}
