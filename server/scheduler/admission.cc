// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"

namespace blockswap::server {
namespace {

using base::FormatByteSize;

AdmissionDecision Wait(const char* reason, std::string message,
                       std::vector<std::string> wanted = {}) {
  AdmissionDecision decision;
  decision.reason = reason;
  decision.message = std::move(message);
  decision.wanted = std::move(wanted);
  return decision;
}

std::string NeedHave(const char* what, int64_t need, int64_t have) {
  return absl::StrCat("waiting for ", what, ": needs ", FormatByteSize(need), ", free ",
                      FormatByteSize(have));
}

// Memory of the host device is host memory: a job on it takes both from one pot.
int64_t HostNeed(const JobRecord& job, const DeviceState& device) {
  return job.needs.host_bytes + (device.kind == DeviceKind::kHost ? job.needs.device_bytes : 0);
}

}  // namespace

AdmissionDecision DecideAdmission(const JobRecord& job, const std::vector<DeviceState>& devices,
                                  const std::set<std::string>& claimed, const HostRoom& room) {
  if (job.ready_micros > room.now_micros) {
    const int64_t left_seconds = (job.ready_micros - room.now_micros + 999999) / 1000000;
    return Wait("BACKOFF", absl::StrCat("the next attempt starts in ", left_seconds, " s"));
  }
  std::vector<const DeviceState*> fitting;
  std::vector<std::string> wanted;
  for (const DeviceState& device : devices) {
    if (!DeviceFits(device, job.requested_device)) continue;
    fitting.push_back(&device);
    if (device.health == DeviceHealth::kHealthy) wanted.push_back(device.name);
  }
  if (fitting.empty()) {
    return Wait("WAITING_FOR_DEVICE",
                absl::StrCat("there is no device \"", job.requested_device, "\" on this server"));
  }
  if (wanted.empty()) {
    return Wait("DEVICE_UNHEALTHY",
                absl::StrCat("device ", fitting[0]->name, ": ", fitting[0]->health_reason));
  }
  std::optional<AdmissionDecision> first_wait;
  const auto note = [&first_wait](AdmissionDecision wait) {
    if (!first_wait.has_value()) first_wait = std::move(wait);
  };
  for (const DeviceState* device : fitting) {
    if (!device->is_free()) continue;
    if (claimed.count(device->name) != 0) {
      note(
          Wait("HIGHER_PRIORITY_AHEAD",
               absl::StrCat("device ", device->name, " is reserved for a job ahead in the queue")));
    } else if (job.needs.device_bytes > device->free_bytes) {
      note(Wait("WAITING_FOR_VRAM",
                NeedHave(absl::StrCat("memory of ", device->name).c_str(), job.needs.device_bytes,
                         device->free_bytes),
                wanted));
    } else if (HostNeed(job, *device) > room.memory_bytes) {
      note(Wait("WAITING_FOR_HOST_RAM",
                NeedHave("host memory", HostNeed(job, *device), room.memory_bytes), wanted));
    } else if (job.needs.disk_bytes > room.disk_bytes) {
      note(Wait("WAITING_FOR_DISK",
                NeedHave("room for a checkpoint", job.needs.disk_bytes, room.disk_bytes), wanted));
    } else {
      AdmissionDecision start;
      start.device = device->name;
      return start;
    }
  }
  if (first_wait.has_value()) return *std::move(first_wait);
  for (const DeviceState* device : fitting) {
    if (!device->holder.empty()) {
      return Wait("WAITING_FOR_DEVICE",
                  absl::StrCat("device ", device->name, " is held by job ", device->holder),
                  wanted);
    }
  }
  return Wait("WAITING_FOR_DEVICE", "no device is free", wanted);
}

}  // namespace blockswap::server
