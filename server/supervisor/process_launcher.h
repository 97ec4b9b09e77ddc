// SPDX-License-Identifier: Apache-2.0
// Starts blockswap-worker processes: own session, clean environment, secret over a pipe, output
// into the job's log.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_LAUNCHER_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_LAUNCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/supervisor/master_store.h"
#include "server/supervisor/process_monitor.h"
#include "server/supervisor/worker_gateway.h"

namespace blockswap::server {

struct ProcessLauncherOptions {
  std::string worker_binary;
  std::string runtime_directory;  // exists, 0700; one subdirectory an attempt is made in it
  std::string models_root, datasets_root;
  std::vector<std::string> passed_environment;  // names of variables the worker inherits
  int64_t log_limit_bytes = int64_t{64} << 20;
  int64_t master_cache_bytes = 0;  // see MasterStore
  // Names the weights a job's worker shares with others; empty: none. May be null.
  std::function<absl::StatusOr<std::string>(const std::string& job_json)> masters_key = nullptr;
};

// `<output_directory>/attempt-<n>.log`: everything the worker of that attempt printed.
std::string AttemptLogPath(const std::string& output_directory, int attempt);

// Thread safety: safe.
class ProcessLauncher final : public WorkerLauncher {
 public:
  ProcessLauncher(ProcessLauncherOptions options, WorkerGateway& gateway, ProcessMonitor& monitor)
      : options_(std::move(options)),
        gateway_(gateway),
        monitor_(monitor),
        masters_(options_.master_cache_bytes) {}

  absl::StatusOr<std::unique_ptr<WorkerHandle>> Launch(const LaunchRequest& request,
                                                       AttemptObserver& observer) override;
  SharedMemoryUsage shared_memory() const override { return masters_.usage(); }

 private:
  std::vector<std::string> Arguments(const LaunchRequest& request,
                                     const std::string& job_file) const;
  std::vector<std::string> Environment(const LaunchRequest& request, bool has_masters) const;
  // Without them the worker reads its weights into memory of its own.
  MasterStore::Use TakeMasters(const LaunchRequest& request);

  const ProcessLauncherOptions options_;
  WorkerGateway& gateway_;
  ProcessMonitor& monitor_;
  MasterStore masters_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_LAUNCHER_H_
