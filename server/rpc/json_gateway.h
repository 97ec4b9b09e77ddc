// SPDX-License-Identifier: Apache-2.0
// The read-only calls of the services as JSON over HTTP: the gateway is a client of the daemon's
// own socket, so that whatever a call checks holds here, too.
#ifndef BLOCKSWAP_SERVER_RPC_JSON_GATEWAY_H_
#define BLOCKSWAP_SERVER_RPC_JSON_GATEWAY_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/metrics/http_exchange.h"

namespace blockswap::server {

struct WatchItem {
  enum class Kind {
    kEvent,     // `json` is the JobEvent
    kBookmark,  // only an id
    kIdle,      // nothing came in time
    kEnd,       // the last one; `json` says why
  };
  Kind kind = Kind::kIdle;
  std::string id;  // where to go on; empty: as before
  std::string json;
};

// One WatchJobs call. Thread safety: one thread. The destructor cancels the call.
class JsonWatch {
 public:
  virtual ~JsonWatch() = default;
  virtual WatchItem Next(std::chrono::milliseconds patience) = 0;
};

// Thread safety: safe.
class JsonGateway final {
 public:
  // Connects when it is first asked; the server may begin to listen later.
  explicit JsonGateway(const std::string& socket_path);
  ~JsonGateway();

  // Answers what is below /api/v1/ (server/web/README.md has the list). Parameters of the query are
  // the fields of the call's request; the answer is the response in the proto3 JSON mapping with
  // fields as the .proto spells them, or {"error": {code, status, reason, message, metadata}}. An
  // Authorization header is passed on.
  HttpResponse Answer(const HttpRequest& request);

  // Starts a WatchJobs call; Last-Event-ID is its resume token and wins over include_snapshot.
  // OutOfRange RESUME_TOKEN_EXPIRED, InvalidArgument for parameters, and what the call answers.
  absl::StatusOr<std::unique_ptr<JsonWatch>> Watch(const HttpRequest& request);

  // Where the job writes, for who may read the job. `job` is its id.
  absl::StatusOr<std::string> OutputDirectory(const std::string& job, const HttpRequest& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_JSON_GATEWAY_H_
