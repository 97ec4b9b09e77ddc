// SPDX-License-Identifier: Apache-2.0
// Decides whether a waiting job may start now and where, or names the one reason why it waits.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_ADMISSION_H_
#define BLOCKSWAP_SERVER_SCHEDULER_ADMISSION_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/device/device_table.h"
#include "server/jobs/job.h"

namespace blockswap::server {

struct HostRoom {
  int64_t memory_bytes = 0;
  int64_t disk_bytes = 0;  // of the outputs
  int64_t now_micros = 0;
};

struct AdmissionDecision {
  std::optional<std::string> device;  // start here
  std::string reason, message;        // or wait: UPPER_SNAKE and one line with the numbers
  std::vector<std::string> wanted;    // devices the job would take when they become free
};

// Pure. `claimed` are devices that an older or more important job waits for: whoever comes later
// may not overtake it there.
AdmissionDecision DecideAdmission(const JobRecord& job, const std::vector<DeviceState>& devices,
                                  const std::set<std::string>& claimed, const HostRoom& room);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_ADMISSION_H_
