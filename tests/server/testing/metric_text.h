// SPDX-License-Identifier: Apache-2.0
// Finds series in collected families and in Prometheus text.
#ifndef BLOCKSWAP_TESTS_SERVER_TESTING_METRIC_TEXT_H_
#define BLOCKSWAP_TESTS_SERVER_TESTING_METRIC_TEXT_H_

#include <prometheus/metric_family.h>

#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace blockswap::server {

inline constexpr double kNoSuchSeries = -std::numeric_limits<double>::infinity();

// `series` is name{label=value,...} with labels in order and without quotes, or the bare name.
inline double ValueOf(const std::vector<prometheus::MetricFamily>& families,
                      const std::string& series) {
  for (const auto& family : families) {
    for (const auto& metric : family.metric) {
      std::map<std::string, std::string> labels;
      for (const auto& label : metric.label) labels[label.name] = label.value;
      std::string name = family.name;
      for (const auto& [label, value] : labels) {
        name += (name == family.name ? "{" : ",") + label + "=" + value;
      }
      if (!labels.empty()) name += "}";
      if (name != series) continue;
      return family.type == prometheus::MetricType::Counter ? metric.counter.value
                                                            : metric.gauge.value;
    }
  }
  return kNoSuchSeries;
}

// Of Prometheus text; `series` as it stands there, with quotes.
inline double TextValueOf(const std::string& text, const std::string& series) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, series) && line.size() > series.size() &&
        line[series.size()] == ' ') {
      return std::atof(std::string(line.substr(series.size() + 1)).c_str());
    }
  }
  return kNoSuchSeries;
}

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_TESTING_METRIC_TEXT_H_
