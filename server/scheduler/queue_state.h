// SPDX-License-Identifier: Apache-2.0
// The machine as the queue sees it at one moment: devices, running jobs, memory.
#ifndef BLOCKSWAP_SERVER_SCHEDULER_QUEUE_STATE_H_
#define BLOCKSWAP_SERVER_SCHEDULER_QUEUE_STATE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/device/device_table.h"
#include "server/scheduler/admission.h"
#include "server/scheduler/queued_job.h"

namespace blockswap::server {

struct RunningJob {
  std::string id, device;
  int64_t device_bytes = 0, host_bytes = 0;
  int64_t end_micros = kNever;  // expected, by the monotonic clock
};

struct QueueState {
  std::vector<DeviceState> devices;
  std::vector<RunningJob> running;
  HostRoom host;
  std::set<std::string> loaded_bases;              // keys of base weights in memory
  std::map<std::string, std::string> device_base;  // of a device's last job
  bool paused = false;
  std::string pause_reason;
  int64_t steady_micros = 0;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SCHEDULER_QUEUE_STATE_H_
