// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cli.h"

#include <map>
#include <optional>

#include "client/cli/arguments.h"
#include "client/cli/commands.h"

namespace blockswap::cli {

int RunCli(const std::vector<std::string>& words, const Surroundings& surroundings) {
  int exit_code = kOk;
  const std::optional<Arguments> arguments =
      ParseArguments(words, *surroundings.out, *surroundings.err, &exit_code);
  if (!arguments.has_value()) return exit_code;

  static const std::map<std::string, ExitCode (*)(Session&, const Arguments&)> kCommands = {
      {"submit", RunSubmit},
      {"plan", RunPlan},
      {"validate", RunValidate},
      {"list", RunList},
      {"get", RunGet},
      {"describe", RunDescribe},
      {"logs", RunLogs},
      {"watch", RunWatch},
      {"wait", RunWait},
      {"update", RunUpdate},
      {"cancel", RunCancel},
      {"metrics", RunMetrics},
      {"devices", RunDevices},
      {"server info", RunServerInfo},
      {"version", RunVersion}};
  Surroundings adjusted = surroundings;
  if (!arguments->colour) adjusted.colour = false;
  Session session(adjusted, arguments->server, arguments->format);
  const ExitCode code = kCommands.at(arguments->command)(session, *arguments);
  surroundings.out->flush();
  if (!surroundings.out->good()) {
    *surroundings.err << "error: the output could not be written\n";
    return code == kOk ? kError : code;
  }
  return code;
}

}  // namespace blockswap::cli
