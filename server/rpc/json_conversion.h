// SPDX-License-Identifier: Apache-2.0
// Between HTTP and the API's messages: queries to requests, responses and errors to JSON.
#ifndef BLOCKSWAP_SERVER_RPC_JSON_CONVERSION_H_
#define BLOCKSWAP_SERVER_RPC_JSON_CONVERSION_H_

#include <google/protobuf/message.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "server/metrics/http_exchange.h"

namespace blockswap::server {

// The proto3 JSON mapping with fields as the .proto spells them, zeros included.
std::string ToJson(const google::protobuf::Message& message);

// The query's parameters become fields of the message: what they are called and may hold, the
// schema says. InvalidArgument names the one that does not fit. Lists are separated by commas.
absl::Status FillFromQuery(const HttpRequest& request, google::protobuf::Message* message);

// Keeps code, message, reason and metadata.
absl::Status FromGrpcStatus(const grpc::Status& status);

// The caller's Authorization header goes with the call.
void PassOn(const HttpRequest& request, grpc::ClientContext& context);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_JSON_CONVERSION_H_
