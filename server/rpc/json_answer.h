// SPDX-License-Identifier: Apache-2.0
// JSON answers of the HTTP API, errors among them.
#ifndef BLOCKSWAP_SERVER_RPC_JSON_ANSWER_H_
#define BLOCKSWAP_SERVER_RPC_JSON_ANSWER_H_

#include <string>

#include "absl/status/status.h"
#include "server/metrics/http_exchange.h"

namespace blockswap::server {

HttpResponse JsonAnswer(std::string body);
// {"error": {code, status, reason, message, metadata}} under the HTTP status that stands for it.
HttpResponse JsonError(const absl::Status& status);
std::string JsonErrorText(const absl::Status& status);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_JSON_ANSWER_H_
