// SPDX-License-Identifier: Apache-2.0
// Whether one device and the host have room for one job now.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_ADMISSION_H_
#define BLOCKSWAP_SERVER_SCHEDULER_ADMISSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/device/device_table.h"
#include "server/scheduler/queued_job.h"
#include "server/scheduler/wait_reason.h"

namespace blockswap::server {

struct HostRoom {
  int64_t memory_bytes = 0;
  int64_t lockable_bytes = kNever;  // for one worker
  // Of base weights that running jobs share, the blocks that are there: who starts on the same base
  // does not take them again.
  std::map<std::string, std::vector<bool>> shared_bases;
  // Free where the job writes its checkpoints. Asked last, and only for jobs that have all else.
  std::function<int64_t(const QueuedJob& job)> disk_bytes;
};

struct DeviceRoom {
  const DeviceState* device = nullptr;
  int places = 0;     // jobs that may still come
  int64_t bytes = 0;  // of device memory
};

// Host memory that the job takes anew on the device: memory of the host device comes from the same
// pot, what it finds of its base is not taken.
int64_t HostNeed(const QueuedJob& job, DeviceKind kind, const HostRoom& room);

// Nothing: the job may start there. REQUIRES: the device is healthy and has a place.
std::optional<WaitReason> WhyNotHere(const QueuedJob& job, const DeviceRoom& device,
                                     const HostRoom& host);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_ADMISSION_H_
