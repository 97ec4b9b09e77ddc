// SPDX-License-Identifier: Apache-2.0
// The daemon as one object: starts everything in order, runs until it is told to stop, stops
// everything in order.
#ifndef BLOCKSWAP_SERVER_DAEMON_H_
#define BLOCKSWAP_SERVER_DAEMON_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/auth/authenticator.h"
#include "server/auth/tls_files.h"
#include "server/base/file_lock.h"
#include "server/base/systemd_notify.h"
#include "server/config/live_config.h"
#include "server/config/server_config.h"
#include "server/device/device_table.h"
#include "server/device/xid_queue.h"
#include "server/events/event_hub.h"
#include "server/metrics/collector.h"
#include "server/metrics/http_server.h"
#include "server/metrics/server_metrics.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/guarded_services.h"
#include "server/rpc/json_gateway.h"
#include "server/rpc/retention.h"
#include "server/rpc/rpc_server.h"
#include "server/rpc/spec_checker.h"
#include "server/rpc/training_service.h"
#include "server/rpc/worker_service.h"
#include "server/scheduler/scheduler.h"
#include "server/store/job_store.h"
#include "server/supervisor/device_prober.h"
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

  // Reads the settings again and takes over what may change; logs what it did.
  void Reload();

  int http_port() const { return http_ == nullptr ? 0 : http_->port(); }
  int tcp_port() const { return client_server_ == nullptr ? 0 : client_server_->tcp_port(); }
  const ServerConfig& config() const { return config_; }
  JobStore& store() { return *store_; }
  DeviceTable& devices() { return *devices_; }

 private:
  explicit Daemon(ServerConfig config)
      : given_(config), config_(std::move(config)), systemd_(SystemdNotifier::FromEnvironment()) {}
  absl::Status StartParts(std::unique_ptr<SpecChecker> checker);
  absl::Status LockAndOpen();
  // Before any job is touched: a taken port must not disturb one.
  absl::Status StartHttp();
  void StartCollectors();
  absl::Status StartWorkersSide();
  absl::Status StartClientsSide();
  absl::Status StartAuthentication();
  absl::Status StartClientServer();
  absl::StatusOr<RpcServerOptions> ListenerOptions();
  // The reloadable settings.
  void Apply(const ServerConfig& config);

  void TellSystemd(const char* state) const;
  std::optional<CgroupRoot> FindCgroups() const;

  const ServerConfig given_;  // before what it leaves to the server was filled in
  ServerConfig config_;
  const SystemdNotifier systemd_;
  std::string runtime_directory_;
  const std::shared_ptr<XidQueue> xids_ = std::make_shared<XidQueue>();
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
  std::unique_ptr<DeviceProber> prober_;
  std::unique_ptr<CollectorSet> collectors_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<JsonGateway> gateway_;
  std::unique_ptr<HttpServer> http_, probes_;
  std::unique_ptr<TokenTable> tokens_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<CallLimits> call_limits_;
  std::unique_ptr<AuditLog> audit_log_;
  std::unique_ptr<RetentionKeeper> retention_;
  std::unique_ptr<RpcContext> context_;
  std::unique_ptr<LiveConfig> live_config_;
  std::unique_ptr<TrainingServiceImpl> training_service_;
  std::unique_ptr<AdminServiceImpl> admin_service_;
  std::unique_ptr<GuardedTrainingService> guarded_training_;
  std::unique_ptr<GuardedAdminService> guarded_admin_;
  std::unique_ptr<TlsFiles> tls_files_;
  std::unique_ptr<RpcServer> client_server_;
  std::string http_address_;  // of the page and the metrics, as bound; empty when there is none
  std::atomic<bool> scheduling_{false};  // release: the scheduler is there to be asked
  bool stopped_ = false;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DAEMON_H_
