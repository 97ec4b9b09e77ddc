// SPDX-License-Identifier: Apache-2.0
// Reads figures from sources that may be slow or hang, each on a thread of its own, so that a
// scrape never waits.
#ifndef BLOCKSWAP_SERVER_METRICS_COLLECTOR_H_
#define BLOCKSWAP_SERVER_METRICS_COLLECTOR_H_

#include <prometheus/metric_family.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace blockswap::server {

struct CollectorOptions {
  std::chrono::milliseconds period{1000};
  // A reading that takes longer counts as an error, and what was read before is shown no longer.
  std::chrono::milliseconds timeout{2000};
  // At the end: how long to wait for a reading. After that its thread is left behind, so the
  // function must own what it uses.
  std::chrono::milliseconds patience{2000};
};

// Owns: one thread, named "collect-NAME". Thread safety: safe. Errors: counted; the families are
// left out until the source answers again.
class Collector final {
 public:
  using Families = std::vector<prometheus::MetricFamily>;
  using Read = std::function<absl::StatusOr<Families>()>;
  struct Snapshot {
    Families families;   // empty when there is nothing or it is too old
    double seconds = 0;  // of the last reading, or of the one that hangs
    int64_t errors = 0;  // readings that failed or took too long
    int64_t rounds = 0;  // readings that ended
  };

  // `name` is a literal: it is a label, too.
  Collector(const char* name, Read read, CollectorOptions options = {});
  ~Collector();

  const char* name() const { return name_; }
  Snapshot Latest() const;
  // False when `rounds` readings have not ended within `patience`.
  bool WaitForRounds(int64_t rounds, std::chrono::milliseconds patience) const;

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const char* const name_;
  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
};

// All collectors of a daemon, and two families about themselves. Thread safety: Add before the
// first Collect, else safe.
class CollectorSet final {
 public:
  Collector& Add(const char* name, Collector::Read read, CollectorOptions options = {});
  Collector::Families Collect() const;

 private:
  std::vector<std::unique_ptr<Collector>> collectors_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_COLLECTOR_H_
