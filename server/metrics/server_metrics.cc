// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/server_metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/ascii.h"
#include "server/jobs/transitions.h"
#include "server/metrics/process_collector.h"

namespace blockswap::server {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;
const Buckets kQueueSeconds = {1, 5, 15, 60, 300, 900, 3600, 14400, 43200, 86400};
const Buckets kStartupSeconds = {0.05, 0.2, 0.5, 1, 2, 5, 15, 60, 300, 900};
const Buckets kAttemptSeconds = {1, 10, 60, 600, 3600, 14400, 43200, 86400, 259200};
const Buckets kShortSeconds = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2};

prometheus::Family<prometheus::Gauge>& Gauge(prometheus::Registry& registry, const char* name,
                                             const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
prometheus::Family<prometheus::Counter>& Counter(prometheus::Registry& registry, const char* name,
                                                 const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
prometheus::Family<prometheus::Histogram>& Histogram(prometheus::Registry& registry,
                                                     const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

std::string Label(absl::string_view upper) { return absl::AsciiStrToLower(upper); }

}  // namespace

ServerMetrics::ServerMetrics(const BuildInfo& build)
    : slots_(registry_),
      build_info_(Gauge(registry_, "blockswap_build_info", "1; versions are in the labels.")),
      ready_gauge_(Gauge(registry_, "blockswap_ready", "1 while jobs are accepted.")),
      store_writable_(
          Gauge(registry_, "blockswap_store_writable", "0 after the disk refused a write.")),
      jobs_(Gauge(registry_, "blockswap_jobs", "Jobs by state.")),
      sequence_(Gauge(registry_, "blockswap_events_sequence", "Number of the last event.")),
      watch_streams_(Gauge(registry_, "blockswap_watch_streams", "Open streams.")),
      workers_(Gauge(registry_, "blockswap_workers", "Worker processes by phase.")),
      device_healthy_(
          Gauge(registry_, "blockswap_device_healthy", "0 when a device takes no jobs.")),
      link_rate_(Gauge(registry_, "blockswap_device_link_bytes_per_second",
                       "Rate the link test of a device measured, by direction.")),
      link_duplex_(Gauge(registry_, "blockswap_device_link_duplex_ratio",
                         "Time of copies one after the other over time at once: 1 to 2.")),
      link_degraded_(Gauge(registry_, "blockswap_device_link_degraded",
                           "1 when the bus is slower than both of its ends allow.")),
      link_generation_(Gauge(registry_, "blockswap_gpu_link_generation",
                             "PCIe generation of the bus, now and at most.")),
      link_lanes_(
          Gauge(registry_, "blockswap_gpu_link_lanes", "Lanes of the bus, now and at most.")),
      gpu_total_(Gauge(registry_, "blockswap_gpu_memory_total_bytes", "Memory of the device.")),
      gpu_used_(
          Gauge(registry_, "blockswap_gpu_memory_used_bytes", "Device memory in use by anyone.")),
      gpu_free_(Gauge(registry_, "blockswap_gpu_memory_free_bytes", "Device memory that is free.")),
      host_limit_(Gauge(registry_, "blockswap_host_memory_limit_bytes", "Host memory there is.")),
      host_available_(
          Gauge(registry_, "blockswap_host_memory_available_bytes", "Host memory to be had.")),
      shared_masters_(
          Gauge(registry_, "blockswap_shared_master_bytes",
                "Base weights in memory that jobs share, by whether a worker uses them.")),
      storage_free_(
          Gauge(registry_, "blockswap_storage_free_bytes", "Free bytes of a directory's disk.")),
      storage_total_(
          Gauge(registry_, "blockswap_storage_total_bytes", "Size of a directory's disk.")),
      submitted_(
          Counter(registry_, "blockswap_jobs_submitted_total", "CreateJob calls by result.")),
      finished_(Counter(registry_, "blockswap_jobs_finished_total",
                        "Jobs that reached a terminal state.")),
      restarts_(Counter(registry_, "blockswap_job_restarts_total", "New attempts by cause.")),
      exits_(
          Counter(registry_, "blockswap_worker_exits_total", "Ends of worker processes by cause.")),
      watch_dropped_(
          Counter(registry_, "blockswap_watch_dropped_total", "Streams that the server cut.")),
      store_errors_(
          Counter(registry_, "blockswap_store_errors_total", "Writes the state store refused.")),
      queue_seconds_(
          Histogram(registry_, "blockswap_job_queue_duration_seconds", "From queued to starting.")),
      startup_seconds_(Histogram(registry_, "blockswap_job_startup_duration_seconds",
                                 "From the worker's start to each phase.")),
      attempt_seconds_(
          Histogram(registry_, "blockswap_job_duration_seconds", "Wall time of attempts.")),
      pass_seconds_(Histogram(registry_, "blockswap_scheduler_pass_duration_seconds",
                              "Duration of scheduling passes.")),
      transaction_seconds_(Histogram(registry_, "blockswap_store_txn_duration_seconds",
                                     "Duration of state store operations.")) {
  build_info_.Add({{"version", build.version}, {"commit", build.commit}, {"grpc", build.grpc}})
      .Set(1);
  SetReady(false);
  SetStore(true, 0);
  for (const char* result : {"accepted", "duplicate", "invalid", "rejected"}) {
    submitted_.Add({{"result", result}});
  }
  for (int state = 1; state <= kNumJobStates; ++state) {
    jobs_.Add({{"state", Label(StateName(static_cast<JobState>(state)))}}).Set(0);
  }
  for (const char* kind : {"events", "logs"}) watch_streams_.Add({{"kind", kind}}).Set(0);
  SetWorkers({});
}

std::string ServerMetrics::Render() {
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  // A family without series has no business in the output.
  families.erase(std::remove_if(families.begin(), families.end(),
                                [](const auto& family) { return family.metric.empty(); }),
                 families.end());
  std::vector<prometheus::MetricFamily> process = CollectProcessMetrics();
  families.insert(families.end(), std::make_move_iterator(process.begin()),
                  std::make_move_iterator(process.end()));
  return prometheus::TextSerializer().Serialize(families);
}

int64_t ServerMetrics::CountSeries() {
  int64_t count = 0;
  for (const auto& family : registry_.Collect()) {
    for (const auto& metric : family.metric) {
      count += family.type == prometheus::MetricType::Histogram
                   ? static_cast<int64_t>(metric.histogram.bucket.size()) + 2
                   : 1;
    }
  }
  return count;
}

void ServerMetrics::JobSubmitted(const char* result) {
  submitted_.Add({{"result", result}}).Increment();
}

void ServerMetrics::JobFinished(const char* result, FailureCategory category) {
  finished_.Add({{"result", result}, {"category", Label(CategoryName(category))}}).Increment();
}

void ServerMetrics::JobRestarted(FailureCategory cause) {
  restarts_.Add({{"cause", Label(CategoryName(cause))}}).Increment();
}

void ServerMetrics::JobQueuedFor(double seconds) {
  queue_seconds_.Add({}, kQueueSeconds).Observe(seconds);
}

void ServerMetrics::JobStartup(const char* phase, double seconds) {
  startup_seconds_.Add({{"phase", phase}}, kStartupSeconds).Observe(seconds);
}

void ServerMetrics::AttemptEnded(const char* result, double seconds) {
  attempt_seconds_.Add({{"result", result}}, kAttemptSeconds).Observe(seconds);
}

void ServerMetrics::WorkerExited(const char* cause) { exits_.Add({{"cause", cause}}).Increment(); }

void ServerMetrics::SetWorkers(const std::map<std::string, int>& by_phase) {
  for (const char* phase : {"starting", "running", "stopping"}) {
    const auto found = by_phase.find(phase);
    workers_.Add({{"phase", phase}}).Set(found == by_phase.end() ? 0 : found->second);
  }
}

void ServerMetrics::SetJobs(const std::map<JobState, int64_t>& counts) {
  for (const auto& [state, count] : counts) {
    jobs_.Add({{"state", Label(StateName(state))}}).Set(static_cast<double>(count));
  }
}

void ServerMetrics::SetReady(bool ready) {
  ready_.store(ready, std::memory_order_relaxed);
  ready_gauge_.Add({}).Set(ready ? 1 : 0);
}

void ServerMetrics::SetStore(bool writable, int64_t last_sequence) {
  store_writable_.Add({}).Set(writable ? 1 : 0);
  sequence_.Add({}).Set(static_cast<double>(last_sequence));
}

void ServerMetrics::StoreTransaction(bool is_write, double seconds) {
  transaction_seconds_.Add({{"op", is_write ? "write" : "read"}}, kShortSeconds).Observe(seconds);
}

void ServerMetrics::SchedulerPass(double seconds) {
  pass_seconds_.Add({}, kShortSeconds).Observe(seconds);
}

void ServerMetrics::WatchStreams(const char* kind, int change) {
  watch_streams_.Add({{"kind", kind}}).Increment(change);
}

void ServerMetrics::WatchDropped(const char* reason) {
  watch_dropped_.Add({{"reason", reason}}).Increment();
}

void ServerMetrics::SetDevices(const std::vector<DeviceState>& devices) {
  for (const DeviceState& device : devices) {
    const prometheus::Labels labels = {{"gpu", device.name}, {"uuid", device.uuid}};
    device_healthy_.Add(labels).Set(device.health == DeviceHealth::kHealthy ? 1 : 0);
    gpu_total_.Add(labels).Set(static_cast<double>(device.total_bytes));
    gpu_free_.Add(labels).Set(static_cast<double>(device.free_bytes));
    gpu_used_.Add(labels).Set(static_cast<double>(device.total_bytes - device.free_bytes));
    SetLink(device);
  }
}

void ServerMetrics::SetLink(const DeviceState& device) {
  const auto set = [&device](auto& family, const char* label, const char* value, double amount) {
    if (amount <= 0) return;  // not measured, or the driver does not tell
    family.Add({{"gpu", device.name}, {"uuid", device.uuid}, {label, value}}).Set(amount);
  };
  set(link_rate_, "direction", "h2d", device.link.h2d);
  set(link_rate_, "direction", "d2h", device.link.d2h);
  set(link_rate_, "direction", "duplex_h2d", device.link.duplex_h2d);
  set(link_rate_, "direction", "duplex_d2h", device.link.duplex_d2h);
  set(link_rate_, "direction", "pageable", device.link.pageable);
  set(link_generation_, "kind", "current", device.negotiated.generation);
  set(link_generation_, "kind", "max", device.negotiated.max_generation);
  set(link_lanes_, "kind", "current", device.negotiated.width);
  set(link_lanes_, "kind", "max", device.negotiated.max_width);
  const prometheus::Labels labels = {{"gpu", device.name}, {"uuid", device.uuid}};
  if (device.link.duplex_factor > 0) link_duplex_.Add(labels).Set(device.link.duplex_factor);
  link_degraded_.Add(labels).Set(device.link_warning.empty() ? 0 : 1);
}

void ServerMetrics::SetHost(const base::HostFacts& memory) {
  const auto set = [this](const char* source, int64_t limit, int64_t available) {
    host_limit_.Add({{"source", source}}).Set(static_cast<double>(limit));
    host_available_.Add({{"source", source}}).Set(static_cast<double>(available));
  };
  set("host", memory.host_total_bytes, memory.host_available_bytes);
  if (memory.control_group_limit != base::kNoLimit)
    set("cgroup", memory.control_group_limit, memory.control_group_available);
  set("effective", std::min(memory.host_total_bytes, memory.control_group_limit),
      memory.available_bytes);
}

void ServerMetrics::SetSharedMemory(const SharedMemoryUsage& usage) {
  shared_masters_.Add({{"state", "used"}}).Set(static_cast<double>(usage.used_bytes));
  shared_masters_.Add({{"state", "unused"}}).Set(static_cast<double>(usage.unused_bytes));
}

void ServerMetrics::SetStorage(const char* area, const DiskSpace& space) {
  storage_free_.Add({{"area", area}}).Set(static_cast<double>(space.free_bytes));
  storage_total_.Add({{"area", area}}).Set(static_cast<double>(space.total_bytes));
}

}  // namespace blockswap::server
