// SPDX-License-Identifier: Apache-2.0
#include "server/serve.h"

#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>

namespace blockswap::server {
namespace {

// SIGHUP reads the settings again and goes on waiting.
int WaitForSignal(const sigset_t& signals, Daemon& daemon) {
  int signal = 0;
  while (true) {
    if (sigwait(&signals, &signal) != 0) continue;
    if (signal != SIGHUP) return signal;
    daemon.Reload();
  }
}

}  // namespace

sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signals;
}

void ForbidCoreDumps() {
  rlimit core{};
  if (::getrlimit(RLIMIT_CORE, &core) != 0) return;
  core.rlim_cur = 0;
  ::setrlimit(RLIMIT_CORE, &core);
}

void ServeUntilStopped(Daemon& daemon, const sigset_t& signals) {
  WaitForSignal(signals, daemon);
  // A second signal speeds the stop up; when none came, the thread that waits for it is woken by
  // one of ours.
  std::atomic<bool> stopped{false};
  std::thread impatience([&daemon, &signals, &stopped] {
    WaitForSignal(signals, daemon);
    if (!stopped.load()) daemon.Hurry();
  });
  daemon.Stop();
  stopped.store(true);
  pthread_kill(impatience.native_handle(), SIGTERM);
  impatience.join();
}

}  // namespace blockswap::server
