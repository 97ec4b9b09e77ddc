// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/http_server.h"

#include <civetweb.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/metrics/listen_error.h"

namespace blockswap::server {
namespace {

constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr int kRequestThreads = 4;  // besides one a stream
constexpr size_t kMaxQueryParts = 32;

// The page needs its own scripts, styles, images and data, and nothing else from anywhere.
constexpr char kCommonHeaders[] =
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\n"
    "Connection: close\r\n";

const char* StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 429:
      return "Too Many Requests";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

std::string HeadOf(const HttpResponse& response) {
  std::string head = absl::StrCat("HTTP/1.1 ", response.status, " ", StatusText(response.status),
                                  "\r\nContent-Type: ", response.type, "\r\n", kCommonHeaders);
  if (response.headers.count("Cache-Control") == 0) {
    absl::StrAppend(&head, "Cache-Control: no-store\r\n");
  }
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  return head;
}

bool WriteAll(mg_connection* connection, absl::string_view text) {
  return mg_write(connection, text.data(), text.size()) == static_cast<int>(text.size());
}

void Answer(mg_connection* connection, bool with_body, const HttpResponse& response) {
  std::string text =
      absl::StrCat(HeadOf(response), "Content-Length: ", response.body.size(), "\r\n\r\n");
  if (with_body) text += response.body;
  WriteAll(connection, text);
}

HttpResponse Text(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
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

std::string Header(const mg_connection* connection, const char* name) {
  const char* value = mg_get_header(connection, name);
  return value == nullptr ? "" : value;
}

std::string Decoded(absl::string_view text) {
  std::string decoded(text.size() + 1, '\0');
  const int size = mg_url_decode(text.data(), static_cast<int>(text.size()), decoded.data(),
                                 static_cast<int>(decoded.size()), /*is_form_url_encoded=*/1);
  decoded.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return decoded;
}

HttpRequest RequestOf(const mg_connection* connection, const mg_request_info& info) {
  HttpRequest request;
  request.path = info.local_uri == nullptr ? "" : info.local_uri;
  request.authorization = Header(connection, "Authorization");
  request.last_event_id = Header(connection, "Last-Event-ID");
  const absl::string_view query = info.query_string == nullptr ? "" : info.query_string;
  for (const absl::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    if (request.query.size() == kMaxQueryParts) break;
    const std::pair<absl::string_view, absl::string_view> both =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    request.query.emplace_back(Decoded(both.first), Decoded(both.second));
  }
  return request;
}

HttpRoute Probe(const char* path, std::function<bool()> probe, const char* good, const char* bad) {
  return {path,
          [probe = std::move(probe), good, bad](const HttpRequest&) {
            const bool holds = probe();
            return Text(holds ? 200 : 503, absl::StrCat(holds ? good : bad, "\n"));
          },
          nullptr};
}

class ConnectionStream final : public HttpStream {
 public:
  ConnectionStream(mg_connection* connection, const std::atomic<bool>& stopping)
      : connection_(connection), stopping_(stopping) {}

  void Refuse(const HttpResponse& response) override {
    is_broken_ = true;
    Answer(connection_, /*with_body=*/true, response);
  }

  bool Write(absl::string_view text) override {
    if (!is_open()) return false;
    if (!std::exchange(is_begun_, true)) {
      HttpResponse head;
      head.type = "text/event-stream; charset=utf-8";
      is_broken_ = !WriteAll(connection_, absl::StrCat(HeadOf(head), "\r\n"));
    }
    is_broken_ = is_broken_ || !WriteAll(connection_, text);
    return !is_broken_;
  }

  bool is_open() const override {
    return !is_broken_ && !stopping_.load(std::memory_order_relaxed);
  }

 private:
  mg_connection* const connection_;
  const std::atomic<bool>& stopping_;
  bool is_begun_ = false, is_broken_ = false;
};

}  // namespace

struct HttpServer::Impl {
  ~Impl() {
    stopping.store(true, std::memory_order_relaxed);
    if (context != nullptr) mg_stop(context);  // joins its threads
  }

  const HttpRoute* Find(const std::string& path) const {
    const HttpRoute* best = nullptr;
    for (const HttpRoute& route : routes) {
      const bool fits =
          path == route.path || (route.path.back() == '/' && absl::StartsWith(path, route.path));
      if (fits && (best == nullptr || route.path.size() > best->path.size())) best = &route;
    }
    return best;
  }

  void Stream(mg_connection* connection, const HttpRoute& route, const HttpRequest& request) {
    ConnectionStream stream(connection, stopping);
    if (streams.fetch_add(1, std::memory_order_relaxed) >= kMaxStreams) {
      HttpResponse full = Text(503, absl::StrCat("too many streams: at most ", kMaxStreams,
                                                 " may be open; close a page that is not used\n"));
      full.headers["Retry-After"] = "10";
      stream.Refuse(full);
    } else {
      route.stream(request, stream);
    }
    streams.fetch_sub(1, std::memory_order_relaxed);
  }

  void Handle(mg_connection* connection) {
    const mg_request_info& info = *mg_get_request_info(connection);
    const bool is_get = std::strcmp(info.request_method, "GET") == 0;
    const bool is_head = std::strcmp(info.request_method, "HEAD") == 0;
    if (reach == HttpReach::kLoopback && !IsLocalHost(mg_get_header(connection, "Host"))) {
      return Answer(connection, !is_head, Text(403, "host not allowed\n"));
    }
    if (!is_get && !is_head) {
      HttpResponse refused = Text(405, "only GET and HEAD are answered\n");
      refused.headers["Allow"] = "GET, HEAD";
      return Answer(connection, /*with_body=*/true, refused);
    }
    const HttpRequest request = RequestOf(connection, info);
    const bool is_probe = request.path == "/healthz" || request.path == "/readyz";
    if (authorize != nullptr && !is_probe && !authorize(request.authorization)) {
      HttpResponse refused = Text(401, "this needs Authorization: Bearer TOKEN\n");
      refused.headers["WWW-Authenticate"] = "Bearer";
      return Answer(connection, is_get, refused);
    }
    const HttpRoute* route = Find(request.path);
    if (route == nullptr) return Answer(connection, is_get, Text(404, "not found\n"));
    if (route->answer != nullptr) return Answer(connection, is_get, route->answer(request));
    if (is_get) return Stream(connection, *route, request);
    Answer(connection, /*with_body=*/false, Text(200, ""));
  }

  HttpReach reach = HttpReach::kLoopback;
  std::function<bool(const std::string&)> authorize;
  std::vector<HttpRoute> routes;
  mg_context* context = nullptr;
  int bound_port = 0;
  std::atomic<bool> stopping{false};  // relaxed: a flag that streams poll
  std::atomic<int> streams{0};        // relaxed: a limit, not a guard
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->bound_port; }
int HttpServer::open_streams() const { return impl_->streams.load(std::memory_order_relaxed); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              HttpContent content,
                                                              HttpReach reach) {
  const bool loopback = absl::StartsWith(address, "127.") || absl::StartsWith(address, "[::1]:");
  if (reach == HttpReach::kProbes && !content.routes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("address ", address, " is for probes alone and takes no other routes"));
  }
  if (reach == HttpReach::kLoopback && !loopback) {
    return absl::InvalidArgumentError(absl::StrCat(
        "http address ", address, " is not on the loopback interface (127.0.0.1 or [::1])"));
  }
  if (absl::StartsWith(address, "[") && mg_check_feature(MG_FEATURES_IPV6) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on http address ", address,
                     ": the web server library of this system has no IPv6; use 127.0.0.1"));
  }
  auto impl = std::make_unique<Impl>();
  impl->reach = reach;
  impl->authorize = std::move(content.authorize);
  impl->routes = std::move(content.routes);
  impl->routes.push_back({"/metrics",
                          [render = std::move(content.metrics)](const HttpRequest&) {
                            HttpResponse response = Text(200, render());
                            response.type = kMetricsType;
                            return response;
                          },
                          nullptr});
  impl->routes.push_back(Probe("/healthz", std::move(content.healthy), "ok", "not healthy"));
  impl->routes.push_back(Probe("/readyz", std::move(content.ready), "ready", "not accepting jobs"));
  const std::string patience = absl::StrCat(content.patience.count());
  const std::string threads =
      absl::StrCat(kRequestThreads + (reach == HttpReach::kLoopback ? kMaxStreams : 0));
  const char* options[] = {"listening_ports",
                           address.c_str(),
                           "num_threads",
                           threads.c_str(),
                           "request_timeout_ms",
                           patience.c_str(),
                           "enable_directory_listing",
                           "no",
                           "max_request_size",
                           "16384",
                           nullptr};
  mg_callbacks callbacks = {};
  callbacks.begin_request = [](mg_connection* connection) {
    static_cast<Impl*>(mg_get_user_data(mg_get_context(connection)))->Handle(connection);
    return 1;  // answered
  };
  impl->context = mg_start(&callbacks, impl.get(), options);
  if (impl->context == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on http address ", address, ": ", WhyCannotListen(address),
                     "; choose another with --", reach == HttpReach::kProbes ? "probes" : "http"));
  }
  mg_server_port port = {};
  if (mg_get_server_ports(impl->context, 1, &port) == 1) impl->bound_port = port.port;
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace blockswap::server
