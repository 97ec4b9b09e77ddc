// SPDX-License-Identifier: Apache-2.0
// Starts blockswap-worker processes, or adopts them: own session, clean environment, secret over a
// pipe, output into the job's log.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_LAUNCHER_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_LAUNCHER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "offload/base/host_facts.h"
#include "server/supervisor/attempt_log.h"
#include "server/supervisor/cgroup.h"
#include "server/supervisor/master_store.h"
#include "server/supervisor/process_monitor.h"
#include "server/supervisor/worker_gateway.h"

namespace blockswap::server {

struct ProcessLauncherOptions {
  std::string worker_binary;
  std::string runtime_directory;     // exists, 0700; one subdirectory an attempt is made in it
  std::string confinement = "auto";  // what a worker may open: auto, required or off
  std::string models_root, datasets_root;
  std::vector<std::string> passed_environment;  // names of variables the worker inherits
  AttemptLogLimits log;
  int64_t master_cache_bytes = 0;  // see MasterStore
  // Where control groups of workers go; nothing: the system offers none.
  std::optional<CgroupRoot> cgroups = std::nullopt;
  CgroupLimits worker_limits;
  base::HostFactsPaths host_files;
};

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
  absl::StatusOr<std::unique_ptr<WorkerHandle>> Adopt(const AdoptRequest& request,
                                                      AttemptObserver& observer) override;
  void RemoveLeftovers() override;
  SharedMemoryUsage shared_memory() const override { return masters_.usage(); }
  std::vector<SharedBase> shared_bases() const override { return masters_.bases(); }

 private:
  std::vector<std::string> Arguments(const LaunchRequest& request,
                                     const std::string& job_file) const;
  std::vector<std::string> Environment(const LaunchRequest& request, size_t num_masters) const;
  std::string AttemptDirectory(const std::string& job_uid, int attempt) const;
  // Puts the process where it and its descendants can be found.
  std::unique_ptr<WorkerContainment> Contain(const std::string& tag, pid_t pid) const;
  // Without them the worker reads its weights into memory of its own.
  std::vector<MasterStore::Use> TakeMasters(const LaunchRequest& request);

  const ProcessLauncherOptions options_;
  WorkerGateway& gateway_;
  ProcessMonitor& monitor_;
  MasterStore masters_;
  std::set<std::string> adopted_;  // tags, until RemoveLeftovers; one thread then
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_PROCESS_LAUNCHER_H_
