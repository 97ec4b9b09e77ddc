// SPDX-License-Identifier: Apache-2.0
// SIGQUIT prints the stacks of all threads, so that a hang leaves a trace before it is ended.
#ifndef BLOCKSWAP_WORKER_CHANNEL_STACK_DUMP_H_
#define BLOCKSWAP_WORKER_CHANNEL_STACK_DUMP_H_

namespace blockswap::worker {

// The process goes on after a dump. Threads that block SIGQUIT, and those stuck in the kernel, are
// missing from it. Addresses are offsets into the named files: `addr2line -Cfe FILE OFFSET`.
void InstallStackDump();

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CHANNEL_STACK_DUMP_H_
