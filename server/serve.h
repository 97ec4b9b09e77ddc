// SPDX-License-Identifier: Apache-2.0
// What a server is as a process: its signals end its daemon, and it leaves no core dump.
#ifndef BLOCKSWAP_SERVER_SERVE_H_
#define BLOCKSWAP_SERVER_SERVE_H_

#include <signal.h>

#include "server/daemon.h"

namespace blockswap::server {

// Blocks SIGTERM, SIGINT and SIGHUP, and ignores SIGPIPE. Before any other thread starts, so that
// all inherit it.
sigset_t BlockStopSignals();

// A dump would hold the tokens of callers and workers. Workers inherit it.
void ForbidCoreDumps();

// Until SIGTERM or SIGINT; then stops the daemon, in a hurry after another of them. SIGHUP
// reads the settings again.
void ServeUntilStopped(Daemon& daemon, const sigset_t& signals);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SERVE_H_
