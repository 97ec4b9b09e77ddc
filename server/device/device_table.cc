// SPDX-License-Identifier: Apache-2.0
#include "server/device/device_table.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "offload/base/host_facts.h"
#include "server/device/xid.h"

namespace blockswap::server {
namespace {

absl::Status NoSuchDevice(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("no such device: ", name));
}

// While jobs run, what others take can be told only as far as it exceeds what the jobs were
// promised.
void NoteForeign(DeviceState& device) {
  const int64_t used = std::max<int64_t>(0, device.total_bytes - device.free_bytes);
  if (device.is_idle()) {
    device.foreign_bytes = used;
  } else {
    const int64_t at_least = std::max<int64_t>(0, used - device.held_bytes());
    device.foreign_bytes = std::min(std::max(device.foreign_bytes, at_least), used);
  }
}

GpuDriver WithAllGpus(std::unique_ptr<Nvml> nvml) {
  GpuDriver driver;
  if (nvml != nullptr) driver.gpus = nvml->Gpus().value_or(std::vector<GpuFacts>());
  driver.nvml = std::move(nvml);
  return driver;
}

// Only a device that computes is expected to have its bus at full speed.
void NoteWarning(DeviceState& device) {
  device.link_warning = LinkWarning(device.negotiated, device.link, !device.is_idle());
  // The cause is worth more than the effect.
  if (device.link_warning.empty()) device.link_warning = device.copies_warning;
}

}  // namespace

int64_t DeviceState::held_bytes() const {
  int64_t bytes = 0;
  for (const DeviceHold& hold : holders) bytes += hold.bytes;
  return bytes;
}

int64_t DeviceState::room_bytes() const {
  if (is_idle()) return free_bytes;
  return std::min(free_bytes, total_bytes - foreign_bytes - held_bytes());
}

bool DeviceFits(const DeviceState& device, const std::string& requested) {
  return requested.empty() || requested == "auto" || requested == device.name ||
         absl::StrReplaceAll(requested, {{":", "-"}}) == device.name ||
         (!device.uuid.empty() && requested == device.uuid);
}

DeviceTable::DeviceTable(std::unique_ptr<Nvml> nvml, int64_t host_budget_bytes, bool offer_host)
    : DeviceTable(WithAllGpus(std::move(nvml)), host_budget_bytes, offer_host) {}

DeviceTable::DeviceTable(GpuDriver driver, int64_t host_budget_bytes, bool offer_host)
    : poller_(std::move(driver.nvml)) {
  const int64_t lockable = base::ReadHostFacts().lock_limit_bytes;
  for (const GpuFacts& gpu : driver.gpus) {
    DeviceState device;
    device.name = GpuDeviceName(gpu.index, gpu.part);
    device.kind = DeviceKind::kCuda;
    device.description = gpu.name;
    device.uuid = gpu.uuid;
    device.card_uuid = gpu.card_uuid;
    device.total_bytes = gpu.total_bytes;
    device.free_bytes = gpu.free_bytes;
    device.lockable_bytes = lockable;
    device.negotiated = gpu.link;
    device.link_key = absl::StrCat(gpu.uuid, " driver ", gpu.driver_version, " PCIe ",
                                   gpu.link.max_generation, " x", gpu.link.width);
    NoteForeign(device);
    NoteWarning(device);
    devices_.push_back(std::move(device));
  }
  if (!driver.problem.empty()) {
    DeviceState missing;
    missing.name = "cuda-0";
    missing.kind = DeviceKind::kCuda;
    missing.description = "GPU that cannot be used";
    missing.health = DeviceHealth::kUnhealthy;
    missing.health_reason = std::move(driver.problem);
    devices_.push_back(std::move(missing));
  }
  if (!devices_.empty() && !offer_host) return;
  DeviceState host;
  host.name = "host";
  host.description = "host memory and CPU";
  host.total_bytes = host.free_bytes = host_budget_bytes;
  host.lockable_bytes = lockable;
  host.link_key = absl::StrCat("host ", std::thread::hardware_concurrency(), " cores");
  devices_.push_back(std::move(host));
}

std::vector<DeviceState> DeviceTable::List() {
  base::MutexLock lock(mutex_);
  return devices_;
}

void DeviceTable::StartPolling(std::chrono::milliseconds period) { poller_.Start(period); }

void DeviceTable::Refresh() {
  if (xids_ != nullptr) {
    for (const XidEvent& event : xids_->TakeAll()) ReportXid(event.uuid, event.xid);
  }
  if (!poller_.has_driver()) return;
  const GpuAnswer answer = poller_.Latest();
  base::MutexLock lock(mutex_);
  if (answer.is_answered) {
    Apply(answer.gpus);
    return;
  }
  const auto silence = std::chrono::duration_cast<std::chrono::seconds>(SteadyNow() - answer.asked);
  if (silence < kDriverPatience) return;
  for (DeviceState& device : devices_) {
    if (device.kind != DeviceKind::kCuda || device.health == DeviceHealth::kDrained) continue;
    device.health = DeviceHealth::kUnhealthy;
    device.health_reason = absl::StrCat("the driver has not answered for ", silence.count(), " s");
  }
}

void DeviceTable::Apply(const std::vector<GpuFacts>& gpus) {
  for (DeviceState& device : devices_) {
    if (device.kind != DeviceKind::kCuda || device.uuid.empty()) continue;
    const auto found = std::find_if(gpus.begin(), gpus.end(), [&device](const GpuFacts& gpu) {
      return gpu.uuid == device.uuid;
    });
    if (found == gpus.end()) {
      if (device.health == DeviceHealth::kDrained) continue;
      device.health = DeviceHealth::kUnhealthy;
      device.health_reason =
          gpus.empty() ? "the driver lists no GPU any more; in a container that happens when the "
                         "host reloads systemd and the control group loses its devices: start the "
                         "container anew"
                       : "the driver does not list it any more: it was lost, or divided anew (MIG)";
    } else {
      device.free_bytes = found->free_bytes;
      NoteForeign(device);
      device.negotiated = found->link;
      NoteWarning(device);
      if (device.health == DeviceHealth::kUnhealthy) {
        device.health = DeviceHealth::kHealthy;
        device.health_reason.clear();
      }
    }
  }
}

void DeviceTable::ReportXid(const std::string& uuid, int64_t xid) {
  if (EffectOfXid(xid) != XidEffect::kDevice) return;
  base::MutexLock lock(mutex_);
  for (DeviceState& device : devices_) {
    if (uuid.empty() || (device.uuid != uuid && device.card_uuid != uuid)) continue;
    device.health = DeviceHealth::kDrained;
    device.health_reason = XidText(xid);
    device.is_faulty = true;
  }
}

bool DeviceTable::HasUsable() {
  base::MutexLock lock(mutex_);
  return std::any_of(devices_.begin(), devices_.end(), [](const DeviceState& device) {
    return device.health == DeviceHealth::kHealthy ||
           (device.health == DeviceHealth::kDrained && !device.is_faulty);
  });
}

void DeviceTable::SetLink(const std::string& name, const MeasuredLink& link) {
  base::MutexLock lock(mutex_);
  DeviceState* device = FindLocked(name);
  if (device == nullptr) return;
  device->link = link;
  NoteWarning(*device);
}

void DeviceTable::NoteSlowCopies(const std::string& name, const std::string& warning) {
  base::MutexLock lock(mutex_);
  DeviceState* device = FindLocked(name);
  if (device == nullptr) return;
  device->copies_warning = warning;
  NoteWarning(*device);
}

DeviceState* DeviceTable::FindLocked(const std::string& name) {
  for (DeviceState& device : devices_) {
    if (device.name == name) return &device;
  }
  return nullptr;
}

absl::Status DeviceTable::Claim(const std::string& name, const std::string& job_id, int64_t bytes,
                                int max_jobs) {
  base::MutexLock lock(mutex_);
  DeviceState* device = FindLocked(name);
  if (device == nullptr) return NoSuchDevice(name);
  if (static_cast<int>(device->holders.size()) >= max_jobs) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", name, " is held by ", device->holders.front().job));
  }
  device->holders.push_back({job_id, bytes});
  return absl::OkStatus();
}

void DeviceTable::Release(const std::string& name, const std::string& job_id) {
  base::MutexLock lock(mutex_);
  DeviceState* device = FindLocked(name);
  if (device == nullptr) return;
  std::erase_if(device->holders, [&job_id](const DeviceHold& hold) { return hold.job == job_id; });
  device->copies_warning.clear();
  NoteWarning(*device);
}

absl::Status DeviceTable::Drain(const std::string& name, const std::string& reason) {
  base::MutexLock lock(mutex_);
  DeviceState* device = FindLocked(name);
  if (device == nullptr) return NoSuchDevice(name);
  device->health = DeviceHealth::kDrained;
  device->health_reason = reason;
  return absl::OkStatus();
}

absl::Status DeviceTable::Undrain(const std::string& name) {
  base::MutexLock lock(mutex_);
  DeviceState* device = FindLocked(name);
  if (device == nullptr) return NoSuchDevice(name);
  device->health = DeviceHealth::kHealthy;
  device->health_reason.clear();
  device->is_faulty = false;
  return absl::OkStatus();
}

}  // namespace blockswap::server
