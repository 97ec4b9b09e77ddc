// SPDX-License-Identifier: Apache-2.0
// The daemon as a process that a test may kill, with a checker that accepts every spec.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/server/testing/test_server.h"

// fake_daemon DIRECTORY: prints "ready" when it serves; stops on SIGTERM.
int main(int argc, char** argv) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  if (argc != 2) return 2;
  // Standard output is for the one word that says that it serves.
  spdlog::set_default_logger(spdlog::stderr_logger_mt("fake_daemon"));
  auto daemon =
      blockswap::server::Daemon::Start(blockswap::server::TestConfig(argv[1]),
                                       std::make_unique<blockswap::server::ScriptedChecker>());
  if (!daemon.ok()) {
    std::fprintf(stderr, "%s\n", std::string(daemon.status().message()).c_str());
    return 1;
  }
  std::puts("ready");
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  (*daemon)->Stop();
  return 0;
}
