// SPDX-License-Identifier: Apache-2.0
// SIGTERM and SIGINT as requests to stop: the first asks for a checkpoint and an end, the second
// for the end alone.
#ifndef BLOCKSWAP_WORKER_TRAIN_STOP_SIGNALS_H_
#define BLOCKSWAP_WORKER_TRAIN_STOP_SIGNALS_H_

#include "worker/channel/reporter.h"

namespace blockswap::worker {

// Installs the handlers for the life of the process. `on_interrupt`: also for SIGINT (a person's
// own run); without it SIGINT is ignored, for a worker whose terminal is not its own.
void InstallStopSignals(bool on_interrupt);

// kNone, kCancel after one signal, kNow after more.
StopRequest SignalledStop();

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_TRAIN_STOP_SIGNALS_H_
