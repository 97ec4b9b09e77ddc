// SPDX-License-Identifier: Apache-2.0
#include "server/device/device_table.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "offload/base/host_facts.h"

namespace blockswap::server {
namespace {

absl::Status NoSuchDevice(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("no such device: ", name));
}

// Only a device that computes is expected to have its bus at full speed.
void NoteWarning(DeviceState& device) {
  device.link_warning = LinkWarning(device.negotiated, device.link, !device.holder.empty());
}

}  // namespace

bool DeviceFits(const DeviceState& device, const std::string& requested) {
  return requested.empty() || requested == "auto" || requested == device.name ||
         absl::StrReplaceAll(requested, {{":", "-"}}) == device.name ||
         (!device.uuid.empty() && requested == device.uuid);
}

DeviceTable::DeviceTable(std::unique_ptr<Nvml> nvml, int64_t host_budget_bytes, bool offer_host)
    : nvml_(std::move(nvml)) {
  const int64_t lockable = base::ReadHostFacts().lock_limit_bytes;
  std::vector<GpuFacts> gpus;
  if (nvml_ != nullptr) gpus = nvml_->Gpus().value_or(std::vector<GpuFacts>());
  for (const GpuFacts& gpu : gpus) {
    DeviceState device;
    device.name = absl::StrCat("cuda-", gpu.index);
    device.kind = DeviceKind::kCuda;
    device.description = gpu.name;
    device.uuid = gpu.uuid;
    device.total_bytes = gpu.total_bytes;
    device.free_bytes = gpu.free_bytes;
    device.lockable_bytes = lockable;
    device.negotiated = gpu.link;
    device.link_key =
        absl::StrCat(gpu.uuid, " driver ", nvml_->DriverVersion(), " PCIe ",
                     gpu.link.max_generation, " x", gpu.link.width);
    NoteWarning(device);
    devices_.push_back(std::move(device));
  }
  if (!gpus.empty() && !offer_host) return;
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

void DeviceTable::Refresh() {
  std::vector<GpuFacts> gpus;
  {
    base::MutexLock lock(nvml_mutex_);
    if (nvml_ == nullptr) return;
    gpus = nvml_->Gpus().value_or(std::vector<GpuFacts>());
  }
  base::MutexLock lock(mutex_);
  for (DeviceState& device : devices_) {
    if (device.kind != DeviceKind::kCuda) continue;
    const auto found = std::find_if(gpus.begin(), gpus.end(), [&device](const GpuFacts& gpu) {
      return gpu.uuid == device.uuid;
    });
    if (found == gpus.end()) {
      device.health = DeviceHealth::kUnhealthy;
      device.health_reason = "the driver does not list it any more";
    } else {
      device.free_bytes = found->free_bytes;
      device.negotiated = found->link;
      NoteWarning(device);
      if (device.health == DeviceHealth::kUnhealthy) {
        device.health = DeviceHealth::kHealthy;
        device.health_reason.clear();
      }
    }
  }
}

void DeviceTable::SetLink(const std::string& name, const MeasuredLink& link) {
  base::MutexLock lock(mutex_);
  DeviceState* device = FindLocked(name);
  if (device == nullptr) return;
  device->link = link;
  NoteWarning(*device);
}

DeviceState* DeviceTable::FindLocked(const std::string& name) {
  for (DeviceState& device : devices_) {
    if (device.name == name) return &device;
  }
  return nullptr;
}

absl::Status DeviceTable::Claim(const std::string& name, const std::string& job_id) {
  base::MutexLock lock(mutex_);
  DeviceState* device = FindLocked(name);
  if (device == nullptr) return NoSuchDevice(name);
  if (!device->holder.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", name, " is held by ", device->holder));
  }
  device->holder = job_id;
  return absl::OkStatus();
}

void DeviceTable::Release(const std::string& name) {
  base::MutexLock lock(mutex_);
  DeviceState* device = FindLocked(name);
  if (device != nullptr) device->holder.clear();
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
  return absl::OkStatus();
}

}  // namespace blockswap::server
