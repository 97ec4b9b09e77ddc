// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/call_metrics.h"

#include "server/metrics/metric_parts.h"

namespace blockswap::server {
namespace {

// Few: each is a series for every method. A watch lasts until the job ends, so the last is long.
const prometheus::Histogram::BucketBoundaries kCallSeconds = {0.01, 0.1, 1, 10};

MetricLabels LabelsOf(const CalledMethod& method) {
  return {
      {"grpc_service", method.service}, {"grpc_method", method.method}, {"grpc_type", method.type}};
}

}  // namespace

CallMetrics::CallMetrics(prometheus::Registry& registry)
    : started_(RegisterCounter(registry, "grpc_server_started_total", "Calls that began.")),
      handled_(RegisterCounter(registry, "grpc_server_handled_total",
                               "Calls that ended, by status code.")),
      seconds_(RegisterHistogram(registry, "grpc_server_handling_seconds",
                                 "Duration of calls, streams as a whole.")) {}

void CallMetrics::Started(const CalledMethod& method) {
  started_.Add(LabelsOf(method)).Increment();
}

void CallMetrics::Handled(const CalledMethod& method, const char* code, double seconds) {
  MetricLabels labels = LabelsOf(method);
  seconds_.Add(labels, kCallSeconds).Observe(seconds);
  labels["grpc_code"] = code;
  handled_.Add(labels).Increment();
}

}  // namespace blockswap::server
