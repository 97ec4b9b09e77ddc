// SPDX-License-Identifier: Apache-2.0
#include "worker/train/stop_signals.h"

#include <csignal>
#include <cstring>

#include <atomic>

namespace blockswap::worker {
namespace {

// A handler may touch nothing else; lock-free on every platform we build for.
std::atomic<int> signals_received{0};
static_assert(std::atomic<int>::is_always_lock_free);

void CountSignal(int) { signals_received.fetch_add(1, std::memory_order_relaxed); }

void Install(int signal_number, void (*handler)(int)) {
  struct sigaction action;
  std::memset(&action, 0, sizeof(action));
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

void InstallStopSignals(bool on_interrupt) {
  Install(SIGTERM, CountSignal);
  Install(SIGINT, on_interrupt ? CountSignal : SIG_IGN);
}

StopRequest SignalledStop() {
  const int count = signals_received.load(std::memory_order_relaxed);
  if (count == 0) return StopRequest::kNone;
  return count == 1 ? StopRequest::kCancel : StopRequest::kNow;
}

}  // namespace blockswap::worker
