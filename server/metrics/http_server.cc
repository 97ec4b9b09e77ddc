// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/http_server.h"

#include <CivetServer.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr char kTextType[] = "text/plain; charset=utf-8";

void Answer(mg_connection* connection, const char* status, const char* type,
            const std::string& body) {
  mg_printf(connection,
            "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nX-Content-Type-Options: "
            "nosniff\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            status, type, body.size());
  mg_write(connection, body.data(), body.size());
}

// A page elsewhere may point its own name at 127.0.0.1: only our names are answered.
bool IsLocalHost(const char* host) {
  if (host == nullptr) return true;
  for (const char* name : {"127.0.0.1", "localhost", "[::1]"}) {
    absl::string_view rest(host);
    if (absl::StartsWith(rest, name) &&
        (rest.size() == std::strlen(name) || rest[std::strlen(name)] == ':')) {
      return true;
    }
  }
  return false;
}

class TextHandler final : public CivetHandler {
 public:
  using Body = std::function<std::pair<bool, std::string>()>;
  TextHandler(const char* type, Body body) : type_(type), body_(std::move(body)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    if (!IsLocalHost(mg_get_header(connection, "Host"))) {
      Answer(connection, "403 Forbidden", kTextType, "host not allowed\n");
      return true;
    }
    const auto [good, text] = body_();
    Answer(connection, good ? "200 OK" : "503 Service Unavailable", type_, text);
    return true;
  }

 private:
  const char* type_;
  Body body_;
};

TextHandler::Body Probe(std::function<bool()> probe, const char* good, const char* bad) {
  return [probe = std::move(probe), good, bad]() {
    const bool holds = probe();
    return std::make_pair(holds, std::string(holds ? good : bad) + "\n");
  };
}

}  // namespace

struct HttpServer::Impl {
  Impl(const std::vector<std::string>& options, HttpContent content)
      : metrics(kMetricsType,
                [render = std::move(content.metrics)]() { return std::make_pair(true, render()); }),
        healthz(kTextType, Probe(std::move(content.healthy), "ok", "not healthy")),
        readyz(kTextType, Probe(std::move(content.ready), "ready", "not accepting jobs")),
        server(options) {
    server.addHandler("/metrics", metrics);
    server.addHandler("/healthz", healthz);
    server.addHandler("/readyz", readyz);
  }

  TextHandler metrics, healthz, readyz;
  CivetServer server;  // last: its threads end before what they call
  int bound_port = 0;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->bound_port; }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              HttpContent content) {
  const bool loopback = absl::StartsWith(address, "127.") || absl::StartsWith(address, "[::1]:");
  if (!loopback) {
    return absl::InvalidArgumentError(absl::StrCat(
        "http address ", address, " is not on the loopback interface (127.0.0.1 or [::1])"));
  }
  const std::vector<std::string> options = {"listening_ports",
                                            address,
                                            "num_threads",
                                            "4",
                                            "request_timeout_ms",
                                            "10000",
                                            "enable_directory_listing",
                                            "no",
                                            "max_request_size",
                                            "16384"};
  // The web server's constructor reports a taken port by throwing: this is the library's boundary.
  try {
    auto impl = std::make_unique<Impl>(options, std::move(content));
    const std::vector<int> ports = impl->server.getListeningPorts();
    impl->bound_port = ports.empty() ? 0 : ports[0];
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on http address ", address, " (", error.what(),
                     "); another process may hold the port: choose another with --http"));
  }
}

}  // namespace blockswap::server
