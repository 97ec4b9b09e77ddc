// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "server/base/log.h"
#include "server/config/server_config.h"
#include "server/daemon.h"
#include "server/rpc/spec_inspector.h"

namespace {

using blockswap::server::Daemon;
using blockswap::server::ServerConfig;

constexpr int kUsage = 2;

// Blocked in this thread before any other starts, so that all inherit it; only sigwait ever sees
// them.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signals;
}

int WaitForSignal(const sigset_t& signals) {
  int signal = 0;
  while (sigwait(&signals, &signal) != 0 || signal == SIGHUP) {
    blockswap::server::LogWarning("SIGHUP: the settings are read at the start only");
  }
  return signal;
}

int Serve(const ServerConfig& config, const sigset_t& signals) {
  blockswap::worker::Roots roots{config.models, config.datasets, config.outputs};
  auto daemon = Daemon::Start(config, std::make_unique<blockswap::server::SpecInspector>(roots));
  if (!daemon.ok()) {
    std::fprintf(stderr, "blockswapd: %s\n", std::string(daemon.status().message()).c_str());
    return EXIT_FAILURE;
  }
  WaitForSignal(signals);
  // A second signal speeds the stop up; when none came, the thread that waits for it is woken by
  // one of ours.
  std::atomic<bool> stopped{false};
  std::thread impatience([&daemon, &signals, &stopped] {
    WaitForSignal(signals);
    if (!stopped.load()) (*daemon)->Hurry();
  });
  (*daemon)->Stop();
  stopped.store(true);
  pthread_kill(impatience.native_handle(), SIGTERM);
  impatience.join();
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  const sigset_t signals = BlockSignals();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  char self[4096];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof(self));
  const std::string program = length > 0 ? std::string(self, static_cast<size_t>(length)) : argv[0];
  auto config = blockswap::server::LoadServerConfig(arguments, program);
  if (!config.ok()) {
    std::fprintf(stderr, "blockswapd: %s\n", std::string(config.status().message()).c_str());
    return kUsage;
  }
  if (config->print_help) {
    std::fputs(blockswap::server::ServerConfigHelp().c_str(), stdout);
    return EXIT_SUCCESS;
  }
  if (config->print_version) {
    std::printf("blockswapd %s\n", BLOCKSWAP_VERSION);
    return EXIT_SUCCESS;
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("blockswapd"));
  spdlog::set_level(spdlog::level::from_str(config->log_level));
  spdlog::flush_on(spdlog::level::info);
  return Serve(*config, signals);
}
