// SPDX-License-Identifier: Apache-2.0
// `blockswap-worker run`: one attempt of a job for the server that started this process.
#ifndef BLOCKSWAP_WORKER_COMMANDS_RUN_H_
#define BLOCKSWAP_WORKER_COMMANDS_RUN_H_

namespace blockswap::worker {

// Returns the process's exit code (reporter.h) and leaves exit.json in the output directory, unless
// no server took this process for the attempt. `argv[0]` is the command's name.
int RunAttempt(int argc, char** argv);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_COMMANDS_RUN_H_
