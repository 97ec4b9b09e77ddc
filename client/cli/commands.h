// SPDX-License-Identifier: Apache-2.0
// One function for each command; each prints what the command has to say and returns the exit code.
#ifndef BLOCKSWAP_CLIENT_CLI_COMMANDS_H_
#define BLOCKSWAP_CLIENT_CLI_COMMANDS_H_

#include "client/cli/arguments.h"
#include "client/cli/exit_code.h"
#include "client/cli/session.h"

namespace blockswap::cli {

ExitCode RunSubmit(Session& session, const Arguments& arguments);
ExitCode RunPlan(Session& session, const Arguments& arguments);
ExitCode RunValidate(Session& session, const Arguments& arguments);
ExitCode RunList(Session& session, const Arguments& arguments);
ExitCode RunGet(Session& session, const Arguments& arguments);
ExitCode RunDescribe(Session& session, const Arguments& arguments);
ExitCode RunLogs(Session& session, const Arguments& arguments);
ExitCode RunWatch(Session& session, const Arguments& arguments);
ExitCode RunWait(Session& session, const Arguments& arguments);
ExitCode RunUpdate(Session& session, const Arguments& arguments);
ExitCode RunCancel(Session& session, const Arguments& arguments);
ExitCode RunMetrics(Session& session, const Arguments& arguments);
ExitCode RunDevices(Session& session, const Arguments& arguments);
ExitCode RunServerInfo(Session& session, const Arguments& arguments);
ExitCode RunVersion(Session& session, const Arguments& arguments);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_COMMANDS_H_
