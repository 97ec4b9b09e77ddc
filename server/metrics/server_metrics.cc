// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/server_metrics.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "server/base/log_lines.h"
#include "server/jobs/transitions.h"
#include "server/metrics/gpu_collector.h"
#include "server/metrics/metric_parts.h"
#include "server/metrics/process_collector.h"

namespace blockswap::server {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;
const Buckets kQueueSeconds = {1, 5, 15, 60, 300, 900, 3600, 14400, 43200, 86400};
const Buckets kStartupSeconds = {0.1, 0.5, 2, 10, 60, 300};
const Buckets kAttemptSeconds = {10, 60, 600, 7200, 86400};
const Buckets kShortSeconds = {0.001, 0.005, 0.02, 0.1, 0.5};

constexpr const char* kAuthFailures[] = {"token_missing", "token_invalid", "token_expired",
                                         "certificate", "access_denied"};

std::string Label(absl::string_view upper) { return absl::AsciiStrToLower(upper); }

prometheus::MetricFamily LogLineFamily() {
  auto lines = CollectedFamily::Counter("blockswap_log_lines_total",
                                        "Lines of the server's own log and of workers.");
  for (const LogSource source : {LogSource::kServer, LogSource::kWorker}) {
    for (const LogLevel level : kLogLevels) {
      lines.Add({{"source", LogSourceName(source)}, {"level", LogLevelName(level)}},
                CountedLogLines().Get(source, level));
    }
  }
  std::vector<prometheus::MetricFamily> families;
  lines.MoveTo(families);
  return std::move(families[0]);
}

}  // namespace

ServerMetrics::ServerMetrics(const BuildInfo& build)
    : slots_(registry_),
      calls_(registry_),
      build_info_(
          RegisterGauge(registry_, "blockswap_build_info", "1; versions are in the labels.")),
      ready_gauge_(RegisterGauge(registry_, "blockswap_ready", "1 while jobs are accepted.")),
      watch_streams_(RegisterGauge(registry_, "blockswap_watch_streams", "Open streams.")),
      workers_(RegisterGauge(registry_, "blockswap_workers", "Worker processes by phase.")),
      device_healthy_(
          RegisterGauge(registry_, "blockswap_device_healthy", "0 when a device takes no jobs.")),
      link_rate_(RegisterGauge(registry_, "blockswap_device_link_bytes_per_second",
                               "Rate the link test of a device measured, by direction.")),
      link_duplex_(RegisterGauge(registry_, "blockswap_device_link_duplex_ratio",
                                 "Time of copies one after the other over time at once: 1 to 2.")),
      link_degraded_(RegisterGauge(registry_, "blockswap_device_link_degraded",
                                   "1 when the bus is slower than both of its ends allow.")),
      link_generation_(RegisterGauge(registry_, "blockswap_gpu_link_generation",
                                     "PCIe generation of the bus, now and at most.")),
      link_lanes_(RegisterGauge(registry_, "blockswap_gpu_link_lanes",
                                "Lanes of the bus, now and at most.")),
      gpu_total_(RegisterGauge(registry_, kGpuMemoryTotal.name, kGpuMemoryTotal.help)),
      gpu_used_(RegisterGauge(registry_, kGpuMemoryUsed.name, kGpuMemoryUsed.help)),
      gpu_free_(RegisterGauge(registry_, kGpuMemoryFree.name, kGpuMemoryFree.help)),
      shared_masters_(
          RegisterGauge(registry_, "blockswap_shared_master_bytes",
                        "Base weights in memory that jobs share, by whether a worker uses them.")),
      certificate_expiry_(RegisterGauge(registry_, "blockswap_certificate_expiry_timestamp_seconds",
                                        "Unix time at which the server's TLS certificate ends.")),
      submitted_(RegisterCounter(registry_, "blockswap_jobs_submitted_total",
                                 "CreateJob calls by result.")),
      finished_(RegisterCounter(registry_, "blockswap_jobs_finished_total",
                                "Jobs that reached a terminal state.")),
      restarts_(
          RegisterCounter(registry_, "blockswap_job_restarts_total", "New attempts by cause.")),
      exits_(RegisterCounter(registry_, "blockswap_worker_exits_total",
                             "Ends of worker processes by cause.")),
      not_started_(RegisterCounter(registry_, "blockswap_worker_start_failures_total",
                                   "Workers that could not be started, by what was missing.")),
      watch_dropped_(RegisterCounter(registry_, "blockswap_watch_dropped_total",
                                     "Streams that the server cut.")),
      auth_failures_(RegisterCounter(registry_, "blockswap_auth_failures_total",
                                     "Calls that were refused for who made them.")),
      queue_seconds_(RegisterHistogram(registry_, "blockswap_job_queue_duration_seconds",
                                       "From queued to starting.")),
      startup_seconds_(RegisterHistogram(registry_, "blockswap_job_startup_duration_seconds",
                                         "Duration of each part of an attempt's start.")),
      attempt_seconds_(
          RegisterHistogram(registry_, "blockswap_job_duration_seconds", "Wall time of attempts.")),
      pass_seconds_(RegisterHistogram(registry_, "blockswap_scheduler_pass_duration_seconds",
                                      "Duration of scheduling passes.")),
      transaction_seconds_(RegisterHistogram(registry_, "blockswap_store_txn_duration_seconds",
                                             "Duration of state store operations.")) {
  build_info_
      .Add({{"version", build.version},
            {"commit", build.commit},
            {"torch", build.torch},
            {"cuda", build.cuda},
            {"grpc", build.grpc}})
      .Set(1);
  SetReady(false);
  for (const char* result : {"accepted", "duplicate", "invalid", "rejected"}) {
    submitted_.Add({{"result", result}});
  }
  for (const char* kind : {"events", "logs"}) watch_streams_.Add({{"kind", kind}}).Set(0);
  SetWorkers({});
  AddFirstZeros();
}

// A rate sees the first event only when the series was there before it.
void ServerMetrics::AddFirstZeros() {
  for (const char* result : {"succeeded", "cancelled"}) {
    finished_.Add({{"result", result}, {"category", Label(CategoryName(FailureCategory::kNone))}});
  }
  for (int i = 1; i < kNumFailureCategories; ++i) {
    const std::string category = Label(CategoryName(static_cast<FailureCategory>(i)));
    finished_.Add({{"result", "failed"}, {"category", category}});
    restarts_.Add({{"cause", category}});
  }
  for (const char* cause :
       {"ok", "signal", "error", "oom_device", "oom_host", "device_fault", "stalled"}) {
    exits_.Add({{"cause", cause}});
  }
  for (const char* kind : {"resources", "other"}) not_started_.Add({{"kind", kind}});
  for (const char* reason : {"slow_consumer", "limit"}) watch_dropped_.Add({{"reason", reason}});
  for (const char* reason : kAuthFailures) auth_failures_.Add({{"reason", reason}});
  auth_failures_.Add({{"reason", "other"}});
}

std::vector<prometheus::MetricFamily> ServerMetrics::Collect() {
  std::vector<prometheus::MetricFamily> families;
  std::map<std::string, size_t> places;
  // One family may have series of several sources; one without series has no business in the
  // output.
  const auto add = [&families, &places](std::vector<prometheus::MetricFamily> more) {
    for (prometheus::MetricFamily& family : more) {
      if (family.metric.empty()) continue;
      const auto [place, is_new] = places.emplace(family.name, families.size());
      if (is_new) {
        families.push_back(std::move(family));
        continue;
      }
      auto& metrics = families[place->second].metric;
      metrics.insert(metrics.end(), std::make_move_iterator(family.metric.begin()),
                     std::make_move_iterator(family.metric.end()));
    }
  };
  add(registry_.Collect());
  for (const Source& source : sources_) add(source());
  add({LogLineFamily()});
  add(CollectProcessMetrics());
  return families;
}

std::string ServerMetrics::Render() { return prometheus::TextSerializer().Serialize(Collect()); }

std::shared_ptr<const std::string> ServerMetrics::RenderAtMost(std::chrono::milliseconds age) {
  base::MutexLock lock(text_mutex_);
  if (text_ == nullptr || SteadyNow() - rendered_ >= age) {
    text_ = std::make_shared<const std::string>(Render());
    rendered_ = SteadyNow();
  }
  return text_;
}

int64_t ServerMetrics::CountSeries() {
  int64_t count = 0;
  for (const auto& family : Collect()) {
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

void ServerMetrics::WorkerNotStarted(const char* kind) {
  not_started_.Add({{"kind", kind}}).Increment();
}

void ServerMetrics::WorkerExited(const char* cause) { exits_.Add({{"cause", cause}}).Increment(); }

void ServerMetrics::SetWorkers(const std::map<std::string, int>& by_phase) {
  for (const char* phase : {"starting", "running", "stopping", "adopted"}) {
    const auto found = by_phase.find(phase);
    workers_.Add({{"phase", phase}}).Set(found == by_phase.end() ? 0 : found->second);
  }
}

void ServerMetrics::SetReady(bool ready) {
  ready_.store(ready, std::memory_order_relaxed);
  ready_gauge_.Add({}).Set(ready ? 1 : 0);
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

void ServerMetrics::AuthFailed(const std::string& reason) {
  const char* label = "other";
  for (const char* known : kAuthFailures) {
    if (reason == known) label = known;
  }
  auth_failures_.Add({{"reason", label}}).Increment();
}

void ServerMetrics::SetCertificateExpiry(double unix_seconds) {
  certificate_expiry_.Add({}).Set(unix_seconds);
}

void ServerMetrics::SetDevices(const std::vector<DeviceState>& devices) {
  for (const DeviceState& device : devices) {
    const prometheus::Labels labels = {{"gpu", device.name}, {"uuid", device.uuid}};
    device_healthy_.Add(labels).Set(device.health == DeviceHealth::kHealthy ? 1 : 0);
    SetLink(device);
    if (device.kind != DeviceKind::kHost) continue;
    gpu_total_.Add(labels).Set(static_cast<double>(device.total_bytes));
    gpu_free_.Add(labels).Set(static_cast<double>(device.free_bytes));
    gpu_used_.Add(labels).Set(static_cast<double>(device.total_bytes - device.free_bytes));
  }
}

void ServerMetrics::SetLink(const DeviceState& device) {
  const auto set = [&device](auto& family, const char* label, const char* value, double amount) {
    if (amount <= 0) return;  // not measured, or the driver does not tell
    family.Add({{"gpu", device.name}, {"uuid", device.uuid}, {label, value}}).Set(amount);
  };
  set(link_rate_, "direction", "h2d", device.link.h2d);
  set(link_rate_, "direction", "d2h", device.link.d2h);
  set(link_rate_, "direction", "pageable", device.link.pageable);
  set(link_generation_, "kind", "current", device.negotiated.generation);
  set(link_generation_, "kind", "max", device.negotiated.max_generation);
  set(link_lanes_, "kind", "current", device.negotiated.width);
  set(link_lanes_, "kind", "max", device.negotiated.max_width);
  const prometheus::Labels labels = {{"gpu", device.name}, {"uuid", device.uuid}};
  if (device.link.duplex_factor > 0) link_duplex_.Add(labels).Set(device.link.duplex_factor);
  link_degraded_.Add(labels).Set(device.link_warning.empty() ? 0 : 1);
}

void ServerMetrics::SetSharedMemory(const SharedMemoryUsage& usage) {
  shared_masters_.Add({{"state", "used"}}).Set(static_cast<double>(usage.used_bytes));
  shared_masters_.Add({{"state", "unused"}}).Set(static_cast<double>(usage.unused_bytes));
}

}  // namespace blockswap::server
