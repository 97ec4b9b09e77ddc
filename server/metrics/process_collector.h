// SPDX-License-Identifier: Apache-2.0
// The standard process_* metrics, read from procfs when they are asked for.
#ifndef BLOCKSWAP_SERVER_METRICS_PROCESS_COLLECTOR_H_
#define BLOCKSWAP_SERVER_METRICS_PROCESS_COLLECTOR_H_

#include <prometheus/metric_family.h>

#include <vector>

namespace blockswap::server {

std::vector<prometheus::MetricFamily> CollectProcessMetrics();

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_PROCESS_COLLECTOR_H_
