// SPDX-License-Identifier: Apache-2.0
// Counts the calls of a gRPC server as an interceptor, so that no handler has to.
#ifndef BLOCKSWAP_SERVER_RPC_CALL_OBSERVER_H_
#define BLOCKSWAP_SERVER_RPC_CALL_OBSERVER_H_

#include <grpcpp/support/server_interceptor.h>

#include <string>

#include "absl/container/flat_hash_map.h"
#include "server/metrics/call_metrics.h"

namespace blockswap::server {

// Thread safety: safe. Methods that no service of ours has share one set of series, named "other":
// anybody may call anything. `metrics` outlives the server's last call.
class CallObserver final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallObserver(CallMetrics& metrics);
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override;

 private:
  CallMetrics& metrics_;
  absl::flat_hash_map<std::string, CalledMethod> known_;  // by full name
  const CalledMethod other_{"other", "other", "unary"};
};

// "NotFound", as in go-grpc-middleware.
const char* CodeName(grpc::StatusCode code);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_CALL_OBSERVER_H_
