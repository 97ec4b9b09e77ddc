// SPDX-License-Identifier: Apache-2.0
// exit.json: a worker's last words, for a server that was not there to hear them.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_EXIT_REPORT_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_EXIT_REPORT_H_

#include <optional>
#include <string>

#include "server/supervisor/worker_update.h"

namespace blockswap::server {

// What the worker of that attempt left in its output directory; nothing when it left none, or one
// of another attempt.
std::optional<ExitingUpdate> ReadExitReport(const std::string& output_directory, int attempt);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_EXIT_REPORT_H_
