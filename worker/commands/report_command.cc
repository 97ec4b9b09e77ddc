// SPDX-License-Identifier: Apache-2.0
#include "worker/commands/report_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "worker/commands/command_exit.h"

namespace blockswap::worker {

int RunReportCommand(const std::string& command, CLI::App* app, int argc, char** argv,
                     absl::FunctionRef<absl::StatusOr<nlohmann::ordered_json>()> make,
                     absl::FunctionRef<std::string(const nlohmann::ordered_json&)> table) {
  std::string output = "table";
  app->add_option("-o,--output", output, "table or json")->check(CLI::IsMember({"table", "json"}));
  try {
    app->parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app->exit(help);
  } catch (const CLI::ParseError& error) {
    return FinishCommand(command, absl::InvalidArgumentError(error.what()));
  }
  const absl::StatusOr<nlohmann::ordered_json> report = make();
  if (report.ok()) {
    // Names may be bytes of broken files.
    const std::string text =
        output == "json"
            ? report->dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"
            : table(*report);
    std::fputs(text.c_str(), stdout);
  }
  return FinishCommand(command, report.status());
}

}  // namespace blockswap::worker
