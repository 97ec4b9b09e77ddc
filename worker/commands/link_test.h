// SPDX-License-Identifier: Apache-2.0
// `blockswap-worker link-test`: measures the bus between host and device, without LibTorch.
#ifndef BLOCKSWAP_WORKER_COMMANDS_LINK_TEST_H_
#define BLOCKSWAP_WORKER_COMMANDS_LINK_TEST_H_

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "offload/host/link_measurement.h"

namespace blockswap::worker {

// One object: device, description, pinned, trial_bytes, h2d, d2h, duplex_h2d, duplex_d2h and
// pageable _bytes_per_second, duplex_factor, latency_seconds. `device` is auto, host or cuda:N.
absl::StatusOr<nlohmann::ordered_json> MeasureDeviceLink(const std::string& device,
                                                         const offload::LinkTrial& trial);

// Returns the process's exit code. `argv[0]` is the command's name.
int RunLinkTest(int argc, char** argv);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_COMMANDS_LINK_TEST_H_
