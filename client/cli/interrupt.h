// SPDX-License-Identifier: Apache-2.0
// Turns Ctrl-C into a call, so that a command that follows a job can detach in good order.
#ifndef BLOCKSWAP_CLIENT_CLI_INTERRUPT_H_
#define BLOCKSWAP_CLIENT_CLI_INTERRUPT_H_

#include <signal.h>

#include <functional>
#include <thread>

namespace blockswap::cli {

// While it lives, SIGINT and SIGTERM call `on_signal` once, on a thread of its own; the second one
// ends the process with 130. Owns: the thread "bs-signals", joined by the destructor. Restores the
// calling thread's signal mask.
class InterruptGuard final {
 public:
  explicit InterruptGuard(std::function<void()> on_signal);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  sigset_t old_mask_;
  std::thread thread_;
};

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_INTERRUPT_H_
