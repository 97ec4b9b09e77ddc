// SPDX-License-Identifier: Apache-2.0
// How many threads compute, and that those which wait do not spin.
#ifndef BLOCKSWAP_WORKER_TRAIN_COMPUTE_THREADS_H_
#define BLOCKSWAP_WORKER_TRAIN_COMPUTE_THREADS_H_

namespace blockswap::worker {

// The OpenMP runtime reads its wait policy when it is loaded, so the process replaces itself once
// with the policy in its environment. Returns only when nothing has to change (or the system
// refuses). REQUIRES: first thing in main.
void EnsurePassiveWaiting(char** argv);

// `configured` (0: not given), else one less than the cores this process may run on, at least 1:
// the copy lane wants one.
int ChooseThreads(int configured);

// From now on. Bits may depend on it.
void UseThreads(int threads);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_COMPUTE_THREADS_H_
