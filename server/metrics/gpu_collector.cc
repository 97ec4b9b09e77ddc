// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/gpu_collector.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/metrics/metric_parts.h"

namespace blockswap::server {
namespace {

struct ThrottleReason {
  const char* name;
  uint64_t bits;  // of nvmlClocksEventReasons; the settings of an operator are no throttling
};
constexpr ThrottleReason kThrottleReasons[] = {{"power", 0x04 | 0x80}, {"thermal", 0x20 | 0x40}};
// Codes beyond the catalogue share a series.
constexpr int64_t kLargestXid = 255;

double Grown(std::optional<uint64_t> now, std::optional<uint64_t> before, uint64_t modulus) {
  if (!now.has_value() || !before.has_value()) return 0;
  if (*now >= *before) return static_cast<double>(*now - *before);
  // Wrapped, or the driver was loaded anew.
  return static_cast<double>(modulus > 0 ? *now + modulus - *before : *now);
}

std::string NameOf(const GpuReading& reading) { return GpuDeviceName(reading.index, reading.part); }

CollectedFamily GaugeOf(const NamedMetric& metric) {
  return CollectedFamily::Gauge(metric.name, metric.help);
}

}  // namespace

void GpuFigures::Sum(const GpuReading& reading, SteadyTime now, Sums& sums) {
  if (reading.energy_joules.has_value()) {
    const double last = sums.last_energy.value_or(*reading.energy_joules);
    if (*reading.energy_joules > last) sums.energy += *reading.energy_joules - last;
    sums.last_energy = reading.energy_joules;
  }
  sums.rx += Grown(reading.pcie_rx, sums.last_rx, reading.pcie_modulus);
  sums.tx += Grown(reading.pcie_tx, sums.last_tx, reading.pcie_modulus);
  sums.last_rx = reading.pcie_rx;
  sums.last_tx = reading.pcie_tx;
  // What holds at a reading is taken to have held since the one before.
  const double passed =
      sums.read == SteadyTime{} ? 0 : std::chrono::duration<double>(now - sums.read).count();
  for (const ThrottleReason& reason : kThrottleReasons) {
    const bool holds = (reading.throttle_bits.value_or(0) & reason.bits) != 0;
    sums.throttled_seconds[reason.name] += holds ? passed : 0;
  }
  sums.read = now;
}

std::vector<prometheus::MetricFamily> GpuFigures::Update(const std::vector<GpuReading>& readings,
                                                         const std::vector<XidEvent>& xids,
                                                         SteadyTime now) {
  auto total = GaugeOf(kGpuMemoryTotal), used = GaugeOf(kGpuMemoryUsed),
       free = GaugeOf(kGpuMemoryFree);
  auto utilization = CollectedFamily::Gauge("blockswap_gpu_utilization_ratio",
                                            "Share of time in which the GPU ran a kernel.");
  auto power = CollectedFamily::Gauge("blockswap_gpu_power_watts", "Power the GPU draws.");
  auto temperature =
      CollectedFamily::Gauge("blockswap_gpu_temperature_celsius", "Temperature of the GPU.");
  auto clock = CollectedFamily::Gauge("blockswap_gpu_sm_clock_hertz", "Clock of the processors.");
  auto energy = CollectedFamily::Counter("blockswap_gpu_energy_joules_total",
                                         "Energy the GPU took since the server started.");
  auto throttled = CollectedFamily::Counter("blockswap_gpu_throttle_seconds_total",
                                            "Time with clocks held down, by reason.");
  auto bus = CollectedFamily::Counter("blockswap_gpu_pcie_bytes_total",
                                      "Bytes over the bus since the server started, as the GPU "
                                      "sees it.");
  for (const GpuReading& reading : readings) {
    Sums& sums = sums_[reading.uuid];
    Sum(reading, now, sums);
    const std::string name = NameOf(reading);
    const MetricLabels labels = {{"gpu", name}, {"uuid", reading.uuid}};
    const auto with = [&labels](const char* label, const char* value) {
      MetricLabels more = labels;
      more[label] = value;
      return more;
    };
    if (reading.total_bytes > 0) {
      total.Add(labels, reading.total_bytes);
      used.Add(labels, reading.used_bytes);
      free.Add(labels, reading.free_bytes);
    }
    if (reading.utilization_ratio) utilization.Add(labels, *reading.utilization_ratio);
    if (reading.pcie_rx) bus.Add({{"gpu", name}, {"direction", "rx"}}, sums.rx);
    if (reading.pcie_tx) bus.Add({{"gpu", name}, {"direction", "tx"}}, sums.tx);
    if (!health_) continue;
    if (reading.power_watts) power.Add(labels, *reading.power_watts);
    if (reading.temperature_celsius) temperature.Add(labels, *reading.temperature_celsius);
    if (reading.sm_clock_hertz) clock.Add(labels, *reading.sm_clock_hertz);
    if (reading.energy_joules) energy.Add(labels, sums.energy);
    if (!reading.throttle_bits) continue;
    for (const ThrottleReason& reason : kThrottleReasons) {
      throttled.Add(with("reason", reason.name), sums.throttled_seconds[reason.name]);
    }
  }
  for (const XidEvent& event : xids) {
    const bool known = event.xid > 0 && event.xid <= kLargestXid;
    ++xid_counts_[{GpuDeviceName(event.index, {}), known ? absl::StrCat(event.xid) : "other"}];
  }
  auto errors = CollectedFamily::Counter("blockswap_device_xid_errors_total",
                                         "Errors the driver reported, by its code (Xid).");
  for (const auto& [key, count] : xid_counts_) {
    errors.Add({{"gpu", key.first}, {"xid", key.second}}, count);
  }
  std::vector<prometheus::MetricFamily> families;
  for (CollectedFamily* family : {&total, &used, &free, &utilization, &power, &temperature, &clock,
                                  &energy, &throttled, &bus, &errors}) {
    family->MoveTo(families);
  }
  return families;
}

namespace {

struct GpuReader {
  GpuReader(GpuCollectorOptions given, std::shared_ptr<DeviceUse> shared_use,
            std::shared_ptr<XidQueue> shared_xids)
      : options(std::move(given)),
        use(std::move(shared_use)),
        xids(std::move(shared_xids)),
        figures(options.health) {}

  absl::StatusOr<Collector::Families> Read() {
    if (sensors == nullptr) {
      auto opened = GpuSensors::Open(options.library);
      if (absl::IsNotFound(opened.status()) && !options.expects_gpu) return Collector::Families();
      BLOCKSWAP_ASSIGN_OR_RETURN(sensors, std::move(opened));
    }
    // First: when the reading fails they are gone.
    const std::vector<XidEvent> events = sensors->TakeXids();
    if (xids != nullptr) xids->Put(events);
    uncounted.insert(uncounted.end(), events.begin(), events.end());
    auto readings = sensors->Read();
    if (!readings.ok()) {
      // A driver that was replaced under us needs a fresh start.
      sensors.reset();
      use->Set({});
      return readings.status();
    }
    std::map<int64_t, int64_t> bytes_by_pid;
    for (const GpuReading& reading : *readings) {
      for (const GpuReading::Process& process : reading.processes) {
        bytes_by_pid[process.pid] += process.bytes;
      }
    }
    use->Set(std::move(bytes_by_pid));
    return figures.Update(*readings, std::exchange(uncounted, {}), SteadyNow());
  }

  const GpuCollectorOptions options;
  const std::shared_ptr<DeviceUse> use;
  const std::shared_ptr<XidQueue> xids;
  std::unique_ptr<GpuSensors> sensors;
  std::vector<XidEvent> uncounted;
  GpuFigures figures;
};

}  // namespace

Collector::Read ReadGpus(GpuCollectorOptions options, std::shared_ptr<DeviceUse> use,
                         std::shared_ptr<XidQueue> xids) {
  return [reader = std::make_shared<GpuReader>(std::move(options), std::move(use),
                                               std::move(xids))] { return reader->Read(); };
}

}  // namespace blockswap::server
