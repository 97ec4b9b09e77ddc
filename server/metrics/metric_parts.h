// SPDX-License-Identifier: Apache-2.0
// Short ways to register a family of metrics, and to make one from values read elsewhere.
#ifndef BLOCKSWAP_SERVER_METRICS_METRIC_PARTS_H_
#define BLOCKSWAP_SERVER_METRICS_METRIC_PARTS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace blockswap::server {

using MetricLabels = std::map<std::string, std::string>;

inline prometheus::Family<prometheus::Gauge>& RegisterGauge(prometheus::Registry& registry,
                                                            const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
inline prometheus::Family<prometheus::Counter>& RegisterCounter(prometheus::Registry& registry,
                                                                const char* name,
                                                                const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
inline prometheus::Family<prometheus::Histogram>& RegisterHistogram(prometheus::Registry& registry,
                                                                    const char* name,
                                                                    const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

// A family whose values are read somewhere else each time.
class CollectedFamily final {
 public:
  CollectedFamily(const char* name, const char* help, prometheus::MetricType type) {
    family_.name = name;
    family_.help = help;
    family_.type = type;
  }
  static CollectedFamily Gauge(const char* name, const char* help) {
    return CollectedFamily(name, help, prometheus::MetricType::Gauge);
  }
  static CollectedFamily Counter(const char* name, const char* help) {
    return CollectedFamily(name, help, prometheus::MetricType::Counter);
  }

  void Add(const MetricLabels& labels, double value) {
    prometheus::ClientMetric metric;
    for (const auto& [label, text] : labels) metric.label.push_back({label, text});
    if (family_.type == prometheus::MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family_.metric.push_back(std::move(metric));
  }
  void Add(const MetricLabels& labels, int64_t value) { Add(labels, static_cast<double>(value)); }

  // Appends itself, unless it has no series.
  void MoveTo(std::vector<prometheus::MetricFamily>& families) {
    if (!family_.metric.empty()) families.push_back(std::move(family_));
  }

 private:
  prometheus::MetricFamily family_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_METRIC_PARTS_H_
