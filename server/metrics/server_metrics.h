// SPDX-License-Identifier: Apache-2.0
// All metrics of the daemon: one registry, rendered as Prometheus text.
#ifndef BLOCKSWAP_SERVER_METRICS_SERVER_METRICS_H_
#define BLOCKSWAP_SERVER_METRICS_SERVER_METRICS_H_

#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"
#include "server/base/wall_clock.h"
#include "server/device/device_table.h"
#include "server/jobs/job.h"
#include "server/metrics/call_metrics.h"
#include "server/metrics/slot_metrics.h"
#include "server/supervisor/worker_launcher.h"

namespace blockswap::server {

struct BuildInfo {
  std::string version, commit, grpc;
  std::string torch = "none", cuda = "none";  // that the workers of this build use
};

// Thread safety: safe. Label values come from enumerations only, except on blockswap_worker_info.
class ServerMetrics final {
 public:
  explicit ServerMetrics(const BuildInfo& build);

  SlotMetrics& slots() { return slots_; }
  CallMetrics& calls() { return calls_; }

  // Families that are read elsewhere. `source` answers at once (see Collector) and never fails.
  // REQUIRES: called before the first Render.
  using Source = std::function<std::vector<prometheus::MetricFamily>()>;
  void AddSource(Source source) { sources_.push_back(std::move(source)); }

  // Everything, as it is now.
  std::string Render();
  // The same, at most `age` old: many scrapers at once cost as much as one.
  std::shared_ptr<const std::string> RenderAtMost(std::chrono::milliseconds age);
  // Series now exposed, for the bound on cardinality.
  int64_t CountSeries();

  void JobSubmitted(const char* result);  // accepted, duplicate, invalid, rejected
  void JobFinished(const char* result, FailureCategory category);
  void JobRestarted(FailureCategory cause);
  void JobQueuedFor(double seconds);
  void JobStartup(const char* phase,
                  double seconds);  // spawn, load_weights (with planning), first_step
  void AttemptEnded(const char* result, double seconds);
  void WorkerExited(const char* cause);
  void WorkerNotStarted(const char* kind);  // resources, other
  // starting, running, stopping, adopted
  void SetWorkers(const std::map<std::string, int>& by_phase);
  void SetReady(bool ready);
  bool ready() const { return ready_.load(std::memory_order_relaxed); }
  void StoreTransaction(bool is_write, double seconds);
  void SchedulerPass(double seconds);
  void WatchStreams(const char* kind, int change);
  void WatchDropped(const char* reason);
  // Callers that were refused: token_missing, token_invalid, token_expired, certificate,
  // access_denied. Anything else counts as "other".
  void AuthFailed(const std::string& reason);
  // Absent without TLS.
  void SetCertificateExpiry(double unix_seconds);
  // Health, link and, of the host device, memory; a GPU's memory comes from its driver.
  void SetDevices(const std::vector<DeviceState>& devices);
  void SetSharedMemory(const SharedMemoryUsage& usage);

 private:
  void AddFirstZeros();
  void SetLink(const DeviceState& device);
  std::vector<prometheus::MetricFamily> Collect();

  prometheus::Registry registry_;
  SlotMetrics slots_;
  CallMetrics calls_;
  std::vector<Source> sources_;  // constant once the server serves
  prometheus::Family<prometheus::Gauge>&build_info_, &ready_gauge_, &watch_streams_, &workers_,
      &device_healthy_, &link_rate_, &link_duplex_, &link_degraded_, &link_generation_,
      &link_lanes_, &gpu_total_, &gpu_used_, &gpu_free_, &shared_masters_, &certificate_expiry_;
  prometheus::Family<prometheus::Counter>&submitted_, &finished_, &restarts_, &exits_,
      &not_started_, &watch_dropped_, &auth_failures_;
  prometheus::Family<prometheus::Histogram>&queue_seconds_, &startup_seconds_, &attempt_seconds_,
      &pass_seconds_, &transaction_seconds_;
  std::atomic<bool> ready_{false};  // relaxed: a flag for probes

  base::Mutex text_mutex_;  // held while rendering: scrapers that come meanwhile get the same text
  std::shared_ptr<const std::string> text_ ABSL_GUARDED_BY(text_mutex_);
  SteadyTime rendered_ ABSL_GUARDED_BY(text_mutex_){};
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_SERVER_METRICS_H_
