// SPDX-License-Identifier: Apache-2.0
// How many threads compute, and that those which wait do not spin for long.
#ifndef BLOCKSWAP_WORKER_TRAIN_COMPUTE_THREADS_H_
#define BLOCKSWAP_WORKER_TRAIN_COMPUTE_THREADS_H_

namespace blockswap::worker {

// The OpenMP runtime reads its wait policy and spin count when it is loaded, so the process replaces itself once
// with them in its environment; a policy that is set there already is left alone. Returns only when nothing has to change (or the system
// refuses). REQUIRES: first thing in main.
void EnsurePassiveWaiting(char** argv);

// `configured` (0: not given), else one less than the cores this process may run on, at least 1:
// the copy lane wants one.
int ChooseThreads(int configured);

// From now on. Bits may depend on it.
void UseThreads(int threads);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_COMPUTE_THREADS_H_
