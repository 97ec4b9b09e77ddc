// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cli.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "client/cli/arguments.h"
#include "client/cli/commands.h"

namespace blockswap::cli {
namespace {

struct Command {
  const char* words;
  ExitCode (*run)(Session& session, const Arguments& arguments);
};

constexpr Command kCommands[] = {
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
    {"devices list", RunDevices},
    {"server info", RunServerInfo},
    {"suspend", RunSuspend},
    {"resume", RunResume},
    {"checkpoint", RunCheckpoint},
    {"sample", RunSample},
    {"retry", RunRetry},
    {"delete", RunDelete},
    {"attempts", RunAttempts},
    {"events", RunEvents},
    {"checkpoints list", RunCheckpointsList},
    {"checkpoints get", RunCheckpointsGet},
    {"checkpoints delete", RunCheckpointsDelete},
    {"templates list", RunTemplates},
    {"devices drain", RunDevicesDrain},
    {"devices undrain", RunDevicesUndrain},
    {"queue show", RunQueueShow},
    {"queue pause", RunQueuePause},
    {"queue resume", RunQueueResume},
    {"server health", RunServerHealth},
    {"server check", RunServerCheck},
    {"server backup", RunServerBackup},
    {"server config", RunServerConfig},
    {"server reload", RunServerReload},
    {"token create", RunTokenCreate},
    {"token list", RunTokenList},
    {"token revoke", RunTokenRevoke},
    {"context list", RunContextList},
    {"context use", RunContextUse},
    {"context add", RunContextAdd},
    {"context remove", RunContextRemove},
    {"config view", RunConfigView},
    {"top", RunTop},
    {"completion", RunCompletion},
    {"manual", RunManual},
    {"version", RunVersion},
};

}  // namespace

int RunCli(const std::vector<std::string>& words, const Surroundings& surroundings) {
  int exit_code = kOk;
  const std::optional<Arguments> arguments =
      ParseArguments(words, *surroundings.out, *surroundings.err, &exit_code);
  if (!arguments.has_value()) return exit_code;

  Surroundings adjusted = surroundings;
  if (!arguments->colour) adjusted.colour = false;
  Session session(adjusted, arguments->endpoint, arguments->format);
  const Command* const command =
      std::find_if(std::begin(kCommands), std::end(kCommands),
                   [&](const Command& each) { return arguments->command == each.words; });
  if (command == std::end(kCommands)) {
    *surroundings.err << "error: no command '" << arguments->command << "'\n";
    return kUsage;
  }
  const ExitCode code = command->run(session, *arguments);
  surroundings.out->flush();
  if (!surroundings.out->good()) {
    *surroundings.err << "error: the output could not be written\n";
    return code == kOk ? kError : code;
  }
  return code;
}

}  // namespace blockswap::cli
