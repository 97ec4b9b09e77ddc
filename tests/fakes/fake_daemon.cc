// SPDX-License-Identifier: Apache-2.0
// The daemon as a process that a test may kill, with a checker that accepts every spec.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "server/serve.h"
#include "tests/server/testing/test_server.h"

namespace {

// The write of the state store at which the process kills itself, counted from the first job on, or
// from the start; 0: at none.
std::atomic<int> fatal_write{0};
std::atomic<int> writes{0};
std::atomic<bool> counts_writes{false};

class CountingChecker final : public blockswap::server::SpecChecker {
 public:
  absl::StatusOr<blockswap::server::CheckedSpec> Check(
      const blockswap::v1::JobSpec& spec,
      const std::vector<blockswap::server::DeviceState>& devices) override {
    counts_writes.store(true);
    return checker_.Check(spec, devices);
  }
  absl::StatusOr<blockswap::server::CheckedSpec> PlanOnly(
      const blockswap::v1::JobSpec& spec,
      const std::vector<blockswap::server::DeviceState>& devices,
      const std::string& profile) override {
    return checker_.PlanOnly(spec, devices, profile);
  }
  std::vector<std::string> architectures() const override { return checker_.architectures(); }

 private:
  blockswap::server::ScriptedChecker checker_;
};

}  // namespace

// SQLite writes its files through this: the linker takes ours instead of the C library's.
extern "C" ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  if (counts_writes.load() && ++writes == fatal_write.load()) ::raise(SIGKILL);
  return static_cast<ssize_t>(::syscall(SYS_pwrite64, fd, bytes, size, offset));
}

// fake_daemon DIRECTORY [SETTING=VALUE]...: prints "ready" when it serves; stops as blockswapd
// does. Settings: attach, heartbeat, progress, grace, terminate (seconds), http (port), places
// (jobs at once), fatal_write, fatal_start_write.
int main(int argc, char** argv) {
  const sigset_t signals = blockswap::server::BlockStopSignals();
  blockswap::server::ForbidCoreDumps();
  if (argc < 2) return 2;
  // Standard output is for the one word that says that it serves.
  spdlog::set_default_logger(spdlog::stderr_logger_mt("fake_daemon"));
  blockswap::server::ServerConfig config = blockswap::server::TestConfig(argv[1]);
  const std::map<std::string, double*> seconds = {{"attach", &config.attach_timeout_seconds},
                                                  {"heartbeat", &config.heartbeat_timeout_seconds},
                                                  {"progress", &config.progress_timeout_seconds},
                                                  {"grace", &config.stop_grace_seconds},
                                                  {"terminate", &config.terminate_grace_seconds}};
  for (int i = 2; i < argc; ++i) {
    const std::string setting = argv[i];
    const size_t equals = setting.find('=');
    const std::string key = setting.substr(0, equals), value = setting.substr(equals + 1);
    if (const auto found = seconds.find(key); found != seconds.end()) {
      *found->second = std::atof(value.c_str());
    } else if (key == "http") {
      config.http = "127.0.0.1:" + value;
    } else if (key == "places") {
      config.max_jobs_per_device = std::atoi(value.c_str());
    } else if (key == "fatal_write") {
      fatal_write.store(std::atoi(value.c_str()));
    } else if (key == "fatal_start_write") {
      fatal_write.store(std::atoi(value.c_str()));
      counts_writes.store(true);
    } else {
      return 2;
    }
  }
  auto daemon = blockswap::server::Daemon::Start(config, std::make_unique<CountingChecker>());
  if (!daemon.ok()) {
    std::fprintf(stderr, "%s\n", std::string(daemon.status().message()).c_str());
    return 1;
  }
  std::puts("ready");
  std::fflush(stdout);
  blockswap::server::ServeUntilStopped(**daemon, signals);
  return 0;
}
