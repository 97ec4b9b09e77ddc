// SPDX-License-Identifier: Apache-2.0
// Runs `blockswap-worker link-test` for one device, in a process that had nothing to do with it
// yet.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_LINK_TRIAL_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_LINK_TRIAL_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/device/device_table.h"

namespace blockswap::server {

struct LinkTrialOptions {
  std::string worker_binary;
  std::vector<std::string> passed_environment;  // names of variables the process inherits
  std::chrono::milliseconds timeout{60000};     // for one device
};

// Blocks. Cancelled as soon as `stop_fd` is readable or closed; DeadlineExceeded; Internal: the
// device cannot be used, or the report not be read.
absl::StatusOr<MeasuredLink> RunLinkTrial(const DeviceState& device,
                                          const LinkTrialOptions& options, int stop_fd);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_LINK_TRIAL_H_
