// SPDX-License-Identifier: Apache-2.0
#include "client/cli/interrupt.h"

#include <pthread.h>
#include <unistd.h>

#include "client/cli/exit_code.h"

namespace blockswap::cli {
namespace {

// Sent to the thread to end it; nothing else in this program uses it.
constexpr int kStop = SIGUSR2;

sigset_t WaitedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, kStop}) sigaddset(&set, signal);
  return set;
}

void WaitForSignals(const std::function<void()>& on_signal) {
  pthread_setname_np(pthread_self(), "bs-signals");
  const sigset_t set = WaitedSignals();
  bool called = false;
  while (true) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (signal == kStop) return;
    // The orderly way did not end it: the person has no more patience.
    if (called) _exit(kInterrupted);
    called = true;
    on_signal();
  }
}

}  // namespace

InterruptGuard::InterruptGuard(std::function<void()> on_signal) {
  const sigset_t set = WaitedSignals();
  // Before the thread starts, so that it and every later thread of gRPC inherit the mask.
  pthread_sigmask(SIG_BLOCK, &set, &old_mask_);
  thread_ = std::thread([on_signal = std::move(on_signal)] { WaitForSignals(on_signal); });
}

InterruptGuard::~InterruptGuard() {
  pthread_kill(thread_.native_handle(), kStop);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

}  // namespace blockswap::cli
