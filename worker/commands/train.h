// SPDX-License-Identifier: Apache-2.0
// `blockswap-worker train FILE`: one job without a server, with its progress on standard error.
#ifndef BLOCKSWAP_WORKER_COMMANDS_TRAIN_H_
#define BLOCKSWAP_WORKER_COMMANDS_TRAIN_H_

namespace blockswap::worker {

// Returns the process's exit code (reporter.h). `argv[0]` is the command's name.
int RunTrain(int argc, char** argv);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_COMMANDS_TRAIN_H_
