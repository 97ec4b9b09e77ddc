// SPDX-License-Identifier: Apache-2.0
// Metrics of a daemon that has seen much: with one slot every family and every value of every
// closed label, with more what a busy machine without faults has.
#ifndef BLOCKSWAP_TESTS_SERVER_TESTING_FULL_METRICS_H_
#define BLOCKSWAP_TESTS_SERVER_TESTING_FULL_METRICS_H_

#include <memory>
#include <string>

#include "server/metrics/server_metrics.h"
#include "server/store/job_store.h"

namespace blockswap::server {

// Thread safety: that of ServerMetrics. The sources that a daemon reads on threads of their own are
// read once, here.
class FullMetrics final {
 public:
  // `slots` devices, each a GPU with a worker; the store is made in `directory`.
  FullMetrics(const std::string& directory, int slots);

  ServerMetrics& metrics() { return metrics_; }
  // One more step of every worker, with all that comes with it.
  void Step();

 private:
  void AddSources(const std::string& directory, int slots);
  void FillServer();
  void FillCalls();
  void FillSlot(const std::string& slot);
  void FillRareEvents(const std::string& slot);
  bool everything() const { return slots_ == 1; }

  ServerMetrics metrics_{BuildInfo{"1.0.0", "abcdef", "1.51.1", "2.11.0", "13.0"}};
  std::unique_ptr<JobStore> store_;
  const int slots_;
  int64_t step_ = 0;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_TESTS_SERVER_TESTING_FULL_METRICS_H_
