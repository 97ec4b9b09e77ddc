// SPDX-License-Identifier: Apache-2.0
// The daemon as one object: starts everything in order, runs until it is told to stop, stops
// everything in order.
#ifndef BLOCKSWAP_SERVER_DAEMON_H_
#define BLOCKSWAP_SERVER_DAEMON_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/file_lock.h"
#include "server/config/server_config.h"
#include "server/device/device_table.h"
#include "server/events/event_hub.h"
#include "server/metrics/http_server.h"
#include "server/metrics/server_metrics.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/rpc_server.h"
#include "server/rpc/spec_checker.h"
#include "server/rpc/training_service.h"
#include "server/rpc/worker_service.h"
#include "server/scheduler/scheduler.h"
#include "server/store/job_store.h"
#include "server/supervisor/link_tester.h"
#include "server/supervisor/process_launcher.h"
#include "server/supervisor/process_monitor.h"

namespace blockswap::server {

// Owns: all parts of the server. Thread safety: Stop and Hurry may be called from any thread.
class Daemon final {
 public:
  // Aborted: another server runs on this state directory or socket. The checker may be null: then
  // files are inspected.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const ServerConfig& config,
                                                       std::unique_ptr<SpecChecker> checker);
  ~Daemon();

  // Health says NOT_SERVING, no new jobs, workers write a checkpoint, streams get their END,
  // sockets close. Then the destructor frees.
  void Stop();
  // The second signal: no more waiting for checkpoints.
  void Hurry();

  int http_port() const { return http_ == nullptr ? 0 : http_->port(); }
  const ServerConfig& config() const { return config_; }
  JobStore& store() { return *store_; }

 private:
  explicit Daemon(ServerConfig config) : config_(std::move(config)) {}
  absl::Status StartParts(std::unique_ptr<SpecChecker> checker);
  absl::Status LockAndOpen();
  absl::Status StartWorkersSide();
  absl::Status StartClientsSide();

  ServerConfig config_;
  std::string runtime_directory_;
  // In the order of their start; destroyed the other way round.
  std::optional<FileLock> state_lock_, socket_lock_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<ServerMetrics> metrics_;
  std::unique_ptr<EventHub> hub_;
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<SpecChecker> checker_;
  std::unique_ptr<WorkerServiceImpl> worker_service_;
  std::unique_ptr<RpcServer> worker_server_;
  std::unique_ptr<ProcessMonitor> monitor_;
  std::unique_ptr<ProcessLauncher> launcher_;
  std::unique_ptr<LinkTester> link_tester_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<RpcContext> context_;
  std::unique_ptr<TrainingServiceImpl> training_service_;
  std::unique_ptr<AdminServiceImpl> admin_service_;
  std::unique_ptr<RpcServer> client_server_;
  bool stopped_ = false;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DAEMON_H_
