// SPDX-License-Identifier: Apache-2.0
// What the driver measures on each GPU, as metric families.
#ifndef BLOCKSWAP_SERVER_METRICS_GPU_COLLECTOR_H_
#define BLOCKSWAP_SERVER_METRICS_GPU_COLLECTOR_H_

#include <prometheus/metric_family.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "offload/base/mutex.h"
#include "server/base/wall_clock.h"
#include "server/device/gpu_sensors.h"
#include "server/device/xid_queue.h"
#include "server/metrics/collector.h"

namespace blockswap::server {

struct NamedMetric {
  const char* name;
  const char* help;
};
// Of every device, the host device too.
inline constexpr NamedMetric kGpuMemoryTotal = {"blockswap_gpu_memory_total_bytes",
                                                "Memory of the device."};
inline constexpr NamedMetric kGpuMemoryUsed = {"blockswap_gpu_memory_used_bytes",
                                               "Device memory in use by anyone."};
inline constexpr NamedMetric kGpuMemoryFree = {"blockswap_gpu_memory_free_bytes",
                                               "Device memory that is free."};

// Adds up what the driver gives as momentary or wrapping figures. Thread safety: one thread.
class GpuFigures final {
 public:
  // Without `health` the families that a DCGM exporter has as well are left out: power,
  // temperature, energy, clock and throttling.
  explicit GpuFigures(bool health) : health_(health) {}

  std::vector<prometheus::MetricFamily> Update(const std::vector<GpuReading>& readings,
                                               const std::vector<XidEvent>& xids, SteadyTime now);

 private:
  struct Sums {
    double energy = 0, rx = 0, tx = 0;
    std::optional<double> last_energy;
    std::optional<uint64_t> last_rx, last_tx;
    std::map<std::string, double> throttled_seconds;
    SteadyTime read{};
  };
  static void Sum(const GpuReading& reading, SteadyTime now, Sums& sums);

  const bool health_;
  std::map<std::string, Sums> sums_;                                   // by uuid
  std::map<std::pair<std::string, std::string>, int64_t> xid_counts_;  // by gpu and xid
};

// Device bytes of each process with a context, from one collector to another: the reader of a
// driver that hangs may outlive the metrics. Thread safety: safe.
class DeviceUse final {
 public:
  void Set(std::map<int64_t, int64_t> bytes_by_pid) {
    base::MutexLock lock(mutex_);
    bytes_by_pid_ = std::move(bytes_by_pid);
  }
  std::optional<int64_t> Of(int64_t pid) const {
    base::MutexLock lock(mutex_);
    const auto found = bytes_by_pid_.find(pid);
    return found == bytes_by_pid_.end() ? std::nullopt : std::make_optional(found->second);
  }

 private:
  mutable base::Mutex mutex_;
  std::map<int64_t, int64_t> bytes_by_pid_ ABSL_GUARDED_BY(mutex_);
};

struct GpuCollectorOptions {
  std::string library = "libnvidia-ml.so.1";
  bool health = true;  // see GpuFigures
  // A machine with a GPU whose library cannot be used is an error; one without a GPU has none.
  bool expects_gpu = false;
};

// For a Collector. Opens the library at the first reading and again after it failed.
// Errors of devices go to `xids`, too, when it is given.
Collector::Read ReadGpus(GpuCollectorOptions options, std::shared_ptr<DeviceUse> use,
                         std::shared_ptr<XidQueue> xids = nullptr);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_METRICS_GPU_COLLECTOR_H_
