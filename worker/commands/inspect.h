// SPDX-License-Identifier: Apache-2.0
// `blockswap-worker inspect FILE`: what a checkpoint is, from its header alone.
#ifndef BLOCKSWAP_WORKER_COMMANDS_INSPECT_H_
#define BLOCKSWAP_WORKER_COMMANDS_INSPECT_H_

#include <string>

#include <nlohmann/json_fwd.hpp>
#include "absl/status/statusor.h"

namespace blockswap::worker {

// Family, configuration, blocks, bytes, stored types and adapter targets of the checkpoint at
// `weights`.
absl::StatusOr<nlohmann::ordered_json> InspectCheckpoint(const std::string& weights,
                                                         const std::string& config);

// The command line: argv[0] is "inspect". Returns the exit status.
int RunInspect(int argc, char** argv);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_COMMANDS_INSPECT_H_
