// SPDX-License-Identifier: Apache-2.0
// Whether printing waits for a reader of the pipe.
#ifndef BLOCKSWAP_WORKER_CHANNEL_OUTPUT_BLOCKING_H_
#define BLOCKSWAP_WORKER_CHANNEL_OUTPUT_BLOCKING_H_

namespace blockswap::worker {

// Of standard output and standard error, where they are pipes; files and terminals stay as they
// are.
void SetOutputBlocking(bool blocks);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_CHANNEL_OUTPUT_BLOCKING_H_
