// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/reservation.h"

#include <algorithm>
#include <utility>

namespace blockswap::server {
namespace {

// A job that runs beyond its time has shown that its estimate is worth nothing.
int64_t TrustedEnd(const RunningJob& job, int64_t now_micros) {
  return job.end_micros <= now_micros ? kNever : job.end_micros;
}

}  // namespace

MachineRoom::MachineRoom(const QueueState& state, int max_jobs_per_device)
    : host(state.host), running_(state.running) {
  devices.reserve(state.devices.size());
  for (const DeviceState& device : state.devices) {
    const int held = static_cast<int>(device.holders.size());
    devices.push_back({&device, std::max(0, max_jobs_per_device - held), device.room_bytes()});
  }
}

void MachineRoom::Take(const RunningJob& started, size_t device) {
  --devices[device].places;
  devices[device].bytes -= started.device_bytes;
  host.memory_bytes -= started.host_bytes;
  running_.push_back(started);
  is_sorted_ = false;
}

std::string MachineRoom::HolderOf(const std::string& device) const {
  for (const RunningJob& job : running_) {
    if (job.device == device) return job.id;
  }
  for (const DeviceRoom& room : devices) {
    if (room.device->name == device && !room.device->holders.empty())
      return room.device->holders.front().job;
  }
  return std::string();
}

void MachineRoom::SortByEnd(int64_t now_micros) {
  if (std::exchange(is_sorted_, true)) return;
  std::sort(running_.begin(), running_.end(),
            [now_micros](const RunningJob& a, const RunningJob& b) {
              return TrustedEnd(a, now_micros) < TrustedEnd(b, now_micros);
            });
}

std::optional<Reservation> MachineRoom::FutureOn(const QueuedJob& job, size_t device,
                                                 int64_t now_micros) const {
  const DeviceRoom& room = devices[device];
  const int64_t need = HostNeed(job, room.device->kind, host);
  int places = room.places;
  int64_t bytes = room.bytes, memory = host.memory_bytes;
  const auto fits = [&] {
    return places >= 1 && bytes >= job.needs.device_bytes && memory >= need;
  };
  // It lacks room on a disk or page locks: no end of a job changes that for certain.
  if (fits()) return std::nullopt;
  Reservation reservation;
  reservation.job = job.id;
  reservation.device = device;
  for (const RunningJob& running : running_) {
    if (running.device == room.device->name) {
      ++places;
      bytes += running.device_bytes;
    }
    memory += running.host_bytes;
    if (!fits()) continue;
    if (TrustedEnd(running, now_micros) != kNever) {
      reservation.start_micros = running.end_micros;
      reservation.spare_places = places - 1;
      reservation.spare_bytes = bytes - job.needs.device_bytes;
      reservation.spare_host_bytes = memory - need;
    } else {
      // When unknown jobs end, anything may be short but what is there now.
      reservation.spare_host_bytes = std::max<int64_t>(0, host.memory_bytes - need);
    }
    return reservation;
  }
  return std::nullopt;
}

std::optional<Reservation> MachineRoom::Reserve(const QueuedJob& job,
                                                const std::vector<size_t>& candidates,
                                                const std::vector<Reservation>& taken,
                                                int64_t now_micros) {
  SortByEnd(now_micros);
  std::optional<Reservation> soonest;
  for (const size_t device : candidates) {
    if (std::any_of(taken.begin(), taken.end(),
                    [device](const auto& other) { return other.device == device; })) {
      continue;
    }
    const std::optional<Reservation> here = FutureOn(job, device, now_micros);
    if (!here.has_value()) continue;
    if (!soonest.has_value() || here->start_micros < soonest->start_micros) soonest = here;
  }
  return soonest;
}

}  // namespace blockswap::server
