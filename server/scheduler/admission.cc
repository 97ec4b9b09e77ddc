// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/admission.h"

#include <algorithm>

namespace blockswap::server {
namespace {

WaitReason Lack(WaitKind kind, const std::string& device, int64_t need, int64_t have) {
  WaitReason reason;
  reason.kind = kind;
  reason.device = device;
  reason.need_bytes = need;
  reason.have_bytes = std::max<int64_t>(0, have);
  return reason;
}

// What of the job's masters is in memory under this key.
int64_t BytesFound(const PlanNeeds& needs, const std::string& key, const HostRoom& room) {
  const auto base = room.shared_bases.find(key);
  if (key.empty() || base == room.shared_bases.end()) return 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < std::min(needs.master_bytes.size(), base->second.size()); ++i) {
    if (base->second[i]) bytes += needs.master_bytes[i];
  }
  return bytes;
}

}  // namespace

int64_t HostNeed(const QueuedJob& job, DeviceKind kind, const HostRoom& room) {
  // Jobs that leave a choice open settle it alike on one machine, as a rule: the base of which more
  // is there is taken to be the one.
  const int64_t found = std::max(BytesFound(job.needs, job.needs.base_key, room),
                                 BytesFound(job.needs, job.needs.other_base_key, room));
  return std::max<int64_t>(0, job.needs.host_bytes - found) +
         (kind == DeviceKind::kHost ? job.needs.device_bytes : 0);
}

std::optional<WaitReason> WhyNotHere(const QueuedJob& job, const DeviceRoom& device,
                                     const HostRoom& host) {
  const std::string& name = device.device->name;
  if (job.needs.device_bytes > device.bytes) {
    return Lack(WaitKind::kDeviceMemory, name, job.needs.device_bytes, device.bytes);
  }
  const int64_t need = HostNeed(job, device.device->kind, host);
  if (need > host.memory_bytes) return Lack(WaitKind::kHostMemory, name, need, host.memory_bytes);
  if (job.needs.locked_bytes > host.lockable_bytes) {
    return Lack(WaitKind::kLockedMemory, name, job.needs.locked_bytes, host.lockable_bytes);
  }
  if (job.needs.disk_bytes > 0) {
    const int64_t disk = host.disk_bytes ? host.disk_bytes(job) : 0;
    if (job.needs.disk_bytes > disk) return Lack(WaitKind::kDisk, name, job.needs.disk_bytes, disk);
  }
  return std::nullopt;
}

}  // namespace blockswap::server
