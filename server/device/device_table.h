// SPDX-License-Identifier: Apache-2.0
// The devices jobs can run on, who holds them, and which are out of service.
#ifndef BLOCKSWAP_SERVER_DEVICE_DEVICE_TABLE_H_
#define BLOCKSWAP_SERVER_DEVICE_DEVICE_TABLE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "offload/base/mutex.h"
#include "server/device/device_link.h"
#include "server/device/gpu_driver.h"
#include "server/device/gpu_poller.h"
#include "server/device/nvml.h"
#include "server/device/xid_queue.h"

namespace blockswap::server {

enum class DeviceKind { kHost = 1, kCuda = 2 };
enum class DeviceHealth { kHealthy = 1, kDrained = 2, kUnhealthy = 3 };

// A job on a device and the device memory it was promised.
struct DeviceHold {
  std::string job;
  int64_t bytes = 0;
};

struct DeviceState {
  std::string name;  // "host", "cuda-0", "cuda-0-mig-7": also the metrics' slot
  DeviceKind kind = DeviceKind::kHost;
  std::string description, uuid;
  std::string card_uuid;  // of the GPU that this is a part of (MIG), else its own
  int64_t total_bytes = 0, free_bytes = 0, lockable_bytes = 0;
  DeviceHealth health = DeviceHealth::kHealthy;
  std::string health_reason;
  bool is_faulty = false;  // drained for a fault, not on request
  std::vector<DeviceHold> holders;
  int64_t foreign_bytes = 0;  // taken by other programs, as far as it can be told
  // Of the bus. The key names the device, its driver and the bus: what was measured under it holds.
  std::string link_key;
  MeasuredLink link;
  NegotiatedLink negotiated;
  std::string copies_warning;  // of the only job's copies: slower than what was measured
  std::string link_warning;    // empty: as fast as it should be

  bool is_idle() const { return holders.empty(); }
  int64_t held_bytes() const;
  // Free for one more job: what holders were promised is theirs before they take it.
  int64_t room_bytes() const;
};

// True for "auto", the name, "cuda:N" and the uuid.
bool DeviceFits(const DeviceState& device, const std::string& requested);

// Thread safety: safe.
class DeviceTable final {
 public:
  // All GPUs of `nvml`, which may be null: then there is the host device alone. With GPUs the host
  // device is offered only if `offer_host`.
  DeviceTable(std::unique_ptr<Nvml> nvml, int64_t host_budget_bytes, bool offer_host);
  // Those that are visible. Where GPUs should be and are not, an unhealthy device that says why
  // stands for them: jobs for a GPU do not run on the host unless it is offered.
  DeviceTable(GpuDriver driver, int64_t host_budget_bytes, bool offer_host);

  std::vector<DeviceState> List();
  // Asks the driver for free memory; a GPU that is not listed any more becomes unhealthy. While the
  // driver hangs it returns at once, and after `kDriverPatience` all GPUs are unhealthy.
  static constexpr std::chrono::seconds kDriverPatience{10};
  void Refresh();
  // From now on the driver is asked on a thread of its own, and Refresh takes its last answer.
  void StartPolling(std::chrono::milliseconds period);
  // What the driver reported of a GPU: a fault of the device drains it, and all parts of it.
  // Unknown ones are ignored.
  void ReportXid(const std::string& uuid, int64_t xid);
  // From now on Refresh takes the errors from there.
  void TakeXidsFrom(std::shared_ptr<XidQueue> xids) { xids_ = std::move(xids); }
  // Some device works, or was drained by somebody who will undrain it.
  bool HasUsable();
  void SetLink(const std::string& name, const MeasuredLink& link);
  // What is to be said of the only holder's copies, until a job leaves the device.
  void NoteSlowCopies(const std::string& name, const std::string& warning);
  // FailedPrecondition: `max_jobs` hold it already.
  absl::Status Claim(const std::string& name, const std::string& job_id, int64_t bytes = 0,
                     int max_jobs = 1);
  void Release(const std::string& name, const std::string& job_id);
  absl::Status Drain(const std::string& name, const std::string& reason);
  absl::Status Undrain(const std::string& name);

 private:
  DeviceState* FindLocked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Apply(const std::vector<GpuFacts>& gpus) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::shared_ptr<XidQueue> xids_;  // constant once it refreshes; may be null
  GpuPoller poller_;                // the driver may hang: it is never asked with mutex_ held
  base::Mutex mutex_;
  std::vector<DeviceState> devices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_DEVICE_TABLE_H_
