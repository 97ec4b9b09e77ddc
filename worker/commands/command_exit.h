// SPDX-License-Identifier: Apache-2.0
// How a command for people ends: one message on standard error and an exit status.
#ifndef BLOCKSWAP_WORKER_COMMANDS_COMMAND_EXIT_H_
#define BLOCKSWAP_WORKER_COMMANDS_COMMAND_EXIT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace blockswap::worker {

// 0 for ok; 10 when the caller's input is wrong or missing; 20 for everything else. Prints
// "command: message".
int FinishCommand(absl::string_view command, const absl::Status& status);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_COMMANDS_COMMAND_EXIT_H_
