// SPDX-License-Identifier: Apache-2.0
// The devices jobs can run on, who holds them, and which are out of service.
#ifndef BLOCKSWAP_SERVER_DEVICE_DEVICE_TABLE_H_
#define BLOCKSWAP_SERVER_DEVICE_DEVICE_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "offload/base/mutex.h"
#include "server/device/device_link.h"
#include "server/device/nvml.h"

namespace blockswap::server {

enum class DeviceKind { kHost = 1, kCuda = 2 };
enum class DeviceHealth { kHealthy = 1, kDrained = 2, kUnhealthy = 3 };

struct DeviceState {
  std::string name;  // "host", "cuda-0": also the metrics' slot
  DeviceKind kind = DeviceKind::kHost;
  std::string description, uuid;
  int64_t total_bytes = 0, free_bytes = 0, lockable_bytes = 0;
  DeviceHealth health = DeviceHealth::kHealthy;
  std::string health_reason;
  std::string holder;  // job id, or empty
  // Of the bus. The key names the device, its driver and the bus: what was measured under it holds.
  std::string link_key;
  MeasuredLink link;
  NegotiatedLink negotiated;
  std::string link_warning;  // empty: as fast as it should be
  bool is_free() const { return holder.empty() && health == DeviceHealth::kHealthy; }
};

// True for "auto", the name, "cuda:N" and the uuid.
bool DeviceFits(const DeviceState& device, const std::string& requested);

// Thread safety: safe.
class DeviceTable final {
 public:
  // `nvml` may be null: then there is the host device alone. With GPUs the host device is offered
  // only if `offer_host`.
  DeviceTable(std::unique_ptr<Nvml> nvml, int64_t host_budget_bytes, bool offer_host);

  std::vector<DeviceState> List();
  // Asks the driver for free memory; a GPU that does not answer any more becomes unhealthy.
  void Refresh();
  void SetLink(const std::string& name, const MeasuredLink& link);
  absl::Status Claim(const std::string& name, const std::string& job_id);
  void Release(const std::string& name);
  absl::Status Drain(const std::string& name, const std::string& reason);
  absl::Status Undrain(const std::string& name);

 private:
  DeviceState* FindLocked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  base::Mutex nvml_mutex_;  // the driver may hang: never wait for it with mutex_ held
  std::unique_ptr<Nvml> nvml_ ABSL_GUARDED_BY(nvml_mutex_);
  base::Mutex mutex_;
  std::vector<DeviceState> devices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_DEVICE_TABLE_H_
