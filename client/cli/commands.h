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
ExitCode RunSuspend(Session& session, const Arguments& arguments);
ExitCode RunResume(Session& session, const Arguments& arguments);
ExitCode RunCheckpoint(Session& session, const Arguments& arguments);
ExitCode RunSample(Session& session, const Arguments& arguments);
ExitCode RunRetry(Session& session, const Arguments& arguments);
ExitCode RunDelete(Session& session, const Arguments& arguments);
ExitCode RunAttempts(Session& session, const Arguments& arguments);
ExitCode RunEvents(Session& session, const Arguments& arguments);
ExitCode RunCheckpointsList(Session& session, const Arguments& arguments);
ExitCode RunCheckpointsGet(Session& session, const Arguments& arguments);
ExitCode RunCheckpointsDelete(Session& session, const Arguments& arguments);
ExitCode RunTemplates(Session& session, const Arguments& arguments);
ExitCode RunDevicesDrain(Session& session, const Arguments& arguments);
ExitCode RunDevicesUndrain(Session& session, const Arguments& arguments);
ExitCode RunQueueShow(Session& session, const Arguments& arguments);
ExitCode RunQueuePause(Session& session, const Arguments& arguments);
ExitCode RunQueueResume(Session& session, const Arguments& arguments);
ExitCode RunServerHealth(Session& session, const Arguments& arguments);
ExitCode RunServerCheck(Session& session, const Arguments& arguments);
ExitCode RunServerBackup(Session& session, const Arguments& arguments);
ExitCode RunServerConfig(Session& session, const Arguments& arguments);
ExitCode RunServerReload(Session& session, const Arguments& arguments);
ExitCode RunTokenCreate(Session& session, const Arguments& arguments);
ExitCode RunTokenList(Session& session, const Arguments& arguments);
ExitCode RunTokenRevoke(Session& session, const Arguments& arguments);
ExitCode RunContextList(Session& session, const Arguments& arguments);
ExitCode RunContextUse(Session& session, const Arguments& arguments);
ExitCode RunContextAdd(Session& session, const Arguments& arguments);
ExitCode RunContextRemove(Session& session, const Arguments& arguments);
ExitCode RunConfigView(Session& session, const Arguments& arguments);
ExitCode RunTop(Session& session, const Arguments& arguments);
ExitCode RunCompletion(Session& session, const Arguments& arguments);
ExitCode RunManual(Session& session, const Arguments& arguments);
ExitCode RunVersion(Session& session, const Arguments& arguments);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_COMMANDS_H_
