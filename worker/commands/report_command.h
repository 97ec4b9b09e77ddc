// SPDX-License-Identifier: Apache-2.0
// A command that prints one report, as a table for people or as JSON for programs.
#ifndef BLOCKSWAP_WORKER_COMMANDS_REPORT_COMMAND_H_
#define BLOCKSWAP_WORKER_COMMANDS_REPORT_COMMAND_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace blockswap::worker {

// Adds `-o table|json` to `app`, reads the command line, and prints what `make` returns. `table`
// turns a report into text. Returns the exit status, see FinishCommand.
int RunReportCommand(const std::string& command, CLI::App* app, int argc, char** argv,
                     absl::FunctionRef<absl::StatusOr<nlohmann::ordered_json>()> make,
                     absl::FunctionRef<std::string(const nlohmann::ordered_json&)> table);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_COMMANDS_REPORT_COMMAND_H_
