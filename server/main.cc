// SPDX-License-Identifier: Apache-2.0
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "server/base/log.h"
#include "server/base/reason.h"
#include "server/build_revision.h"
#include "server/config/server_config.h"
#include "server/daemon.h"
#include "server/rpc/spec_inspector.h"
#include "server/serve.h"
#include "server/store/schema.h"
#include "server/store/store_file.h"

namespace {

using blockswap::server::Daemon;
using blockswap::server::ServerConfig;

constexpr int kUsage = 2;
// Somebody has to look at the state store: another start would end the same way.
constexpr int kStoreUnusable = 3;
constexpr char kCheckStore[] = "--check-store";

int ExitCodeOf(const absl::Status& status) {
  const bool is_store = absl::IsDataLoss(status) ||
                        blockswap::server::ReasonOf(status) == blockswap::server::kStoreTooNew;
  return is_store ? kStoreUnusable : EXIT_FAILURE;
}

int CheckStore(const ServerConfig& config) {
  const std::string file = blockswap::server::StoreFileOf(config.state_dir);
  const auto check = blockswap::server::CheckStoreFile(file);
  if (!check.ok()) {
    std::fprintf(stderr, "blockswapd: %s\n", std::string(check.status().message()).c_str());
    return ExitCodeOf(check.status());
  }
  std::printf("%s: %s, %lld bytes, schema %d (this blockswapd: %d)\n", file.c_str(),
              check->problems.empty() ? "sound" : "damaged", static_cast<long long>(check->bytes),
              check->schema_version, blockswap::server::CurrentSchemaVersion());
  for (const std::string& problem : check->problems) std::printf("  %s\n", problem.c_str());
  return check->problems.empty() ? EXIT_SUCCESS : kStoreUnusable;
}

int Serve(const ServerConfig& config, const sigset_t& signals) {
  blockswap::worker::Roots roots{config.models, config.datasets, config.outputs};
  auto daemon = Daemon::Start(config, std::make_unique<blockswap::server::SpecInspector>(roots));
  if (!daemon.ok()) {
    std::fprintf(stderr, "blockswapd: %s\n", std::string(daemon.status().message()).c_str());
    return ExitCodeOf(daemon.status());
  }
  blockswap::server::ServeUntilStopped(**daemon, signals);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  const sigset_t signals = blockswap::server::BlockStopSignals();
  blockswap::server::ForbidCoreDumps();
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool checks_store = std::erase(arguments, kCheckStore) > 0;
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
    std::printf("blockswapd %s (%s), gRPC %s, string ABI %d\n", BLOCKSWAP_VERSION,
                blockswap::server::BuildRevision(), grpc::Version().c_str(),
                _GLIBCXX_USE_CXX11_ABI);
    return EXIT_SUCCESS;
  }
  if (checks_store) return CheckStore(*config);
  spdlog::set_default_logger(spdlog::stderr_logger_mt("blockswapd"));
  spdlog::set_level(spdlog::level::from_str(config->log_level));
  spdlog::flush_on(spdlog::level::info);
  return Serve(*config, signals);
}
