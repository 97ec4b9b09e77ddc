// SPDX-License-Identifier: Apache-2.0
// What the web server hands to those who answer requests, and what they hand back.
#ifndef BLOCKSWAP_SERVER_METRICS_HTTP_EXCHANGE_H_
#define BLOCKSWAP_SERVER_METRICS_HTTP_EXCHANGE_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace blockswap::server {

struct HttpRequest {
  std::string path;                                        // decoded, begins with '/'
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in order
  // Header fields; empty when absent.
  std::string authorization, last_event_id;
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::map<std::string, std::string> headers;  // besides those that every answer has
};

// An answer without an end that is known beforehand. Thread safety: its request's thread only.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // Answers this instead. REQUIRES: nothing was written.
  virtual void Refuse(const HttpResponse& response) = 0;
  // False: the reader is gone, reads too slowly, or the server stops; the caller returns then.
  virtual bool Write(absl::string_view text) = 0;
  virtual bool is_open() const = 0;
};

// One of the two functions is set. They are called by several threads at once.
struct HttpRoute {
  std::string path;  // this path; one that ends in '/' is everything below it, too
  std::function<HttpResponse(const HttpRequest&)> answer;
  std::function<void(const HttpRequest&, HttpStream&)> stream;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_HTTP_EXCHANGE_H_
