// SPDX-License-Identifier: Apache-2.0
// What clients call, under the names that stock gRPC dashboards know.
#ifndef BLOCKSWAP_SERVER_METRICS_CALL_METRICS_H_
#define BLOCKSWAP_SERVER_METRICS_CALL_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>

namespace blockswap::server {

// One method, as the labels say it.
struct CalledMethod {
  std::string service, method;  // "blockswap.v1.TrainingService", "GetJob"; "other" when unknown
  const char* type = "unary";   // unary, client_stream, server_stream, bidi_stream
};

// Thread safety: safe.
class CallMetrics final {
 public:
  explicit CallMetrics(prometheus::Registry& registry);

  void Started(const CalledMethod& method);
  // `code` is the name of a gRPC status code as in go-grpc-middleware: "OK", "NotFound".
  void Handled(const CalledMethod& method, const char* code, double seconds);

 private:
  prometheus::Family<prometheus::Counter>&started_, &handled_;
  prometheus::Family<prometheus::Histogram>& seconds_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_CALL_METRICS_H_
