// SPDX-License-Identifier: Apache-2.0
// `blockswap-worker bench-step`: times LoRA training steps of a checkpoint on random inputs, all
// blocks resident.
#ifndef BLOCKSWAP_WORKER_COMMANDS_BENCH_STEP_H_
#define BLOCKSWAP_WORKER_COMMANDS_BENCH_STEP_H_

namespace blockswap::worker {

// Prints {"step_seconds": [...], "peak_rss_bytes": n}. Returns the process's exit code. `argv[0]`
// is the command's name.
int RunBenchStep(int argc, char** argv);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_COMMANDS_BENCH_STEP_H_
