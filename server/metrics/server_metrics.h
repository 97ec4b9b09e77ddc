// SPDX-License-Identifier: Apache-2.0
// All metrics of the daemon: one registry, rendered as Prometheus text.
#ifndef BLOCKSWAP_SERVER_METRICS_SERVER_METRICS_H_
#define BLOCKSWAP_SERVER_METRICS_SERVER_METRICS_H_

#include <prometheus/registry.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "offload/base/host_facts.h"
#include "server/device/device_table.h"
#include "server/device/disk_space.h"
#include "server/jobs/job.h"
#include "server/metrics/slot_metrics.h"
#include "server/supervisor/worker_launcher.h"

namespace blockswap::server {

struct BuildInfo {
  std::string version, commit, grpc;
};

// Thread safety: safe. Label values come from enumerations only, except on blockswap_worker_info.
class ServerMetrics final {
 public:
  explicit ServerMetrics(const BuildInfo& build);

  SlotMetrics& slots() { return slots_; }
  std::string Render();
  // Series now exposed, for the bound on cardinality.
  int64_t CountSeries();

  void JobSubmitted(const char* result);  // accepted, duplicate, invalid, rejected
  void JobFinished(const char* result, FailureCategory category);
  void JobRestarted(FailureCategory cause);
  void JobQueuedFor(double seconds);
  void JobStartup(const char* phase, double seconds);  // spawn, ready, first_step
  void AttemptEnded(const char* result, double seconds);
  void WorkerExited(const char* cause);
  void SetWorkers(const std::map<std::string, int>& by_phase);
  void SetJobs(const std::map<JobState, int64_t>& counts);
  void SetReady(bool ready);
  bool ready() const { return ready_.load(std::memory_order_relaxed); }
  void SetStore(bool writable, int64_t last_sequence);
  void StoreTransaction(bool is_write, double seconds);
  void SchedulerPass(double seconds);
  void WatchStreams(const char* kind, int change);
  void WatchDropped(const char* reason);
  void SetDevices(const std::vector<DeviceState>& devices);
  void SetHost(const base::HostFacts& memory);
  void SetSharedMemory(const SharedMemoryUsage& usage);
  void SetStorage(const char* area, const DiskSpace& space);

 private:
  void SetLink(const DeviceState& device);

  prometheus::Registry registry_;
  SlotMetrics slots_;
  prometheus::Family<prometheus::Gauge>&build_info_, &ready_gauge_, &store_writable_, &jobs_,
      &sequence_, &watch_streams_, &workers_, &device_healthy_, &link_rate_, &link_duplex_, &link_degraded_, &link_generation_, &link_lanes_,
      &gpu_total_, &gpu_used_, &gpu_free_,
      &host_limit_, &host_available_, &shared_masters_, &storage_free_, &storage_total_;
  prometheus::Family<prometheus::Counter>&submitted_, &finished_, &restarts_, &exits_,
      &watch_dropped_, &store_errors_;
  prometheus::Family<prometheus::Histogram>&queue_seconds_, &startup_seconds_, &attempt_seconds_,
      &pass_seconds_, &transaction_seconds_;
  std::atomic<bool> ready_{false};  // relaxed: a flag for probes
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_SERVER_METRICS_H_
