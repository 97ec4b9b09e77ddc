// SPDX-License-Identifier: Apache-2.0
#include "server/daemon.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "offload/base/host_facts.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/wall_clock.h"
#include "server/build_revision.h"

namespace blockswap::server {
namespace {

constexpr int kWorkerMessageBytes = 1 << 20;
constexpr int64_t kRequestIdMicros = int64_t{7} * 24 * 3600 * 1000000;
// For streams to write their END after the workers are gone.
constexpr std::chrono::milliseconds kStreamGrace{2000};

std::chrono::milliseconds Millis(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

SchedulerOptions SchedulerOptionsOf(const ServerConfig& config) {
  SchedulerOptions options;
  options.retry.backoff = Millis(config.retry_backoff_seconds);
  options.clocks.attach = Millis(config.attach_timeout_seconds);
  options.clocks.heartbeat = Millis(config.heartbeat_timeout_seconds);
  options.clocks.progress = Millis(config.progress_timeout_seconds);
  options.ladder.grace = Millis(config.stop_grace_seconds);
  options.ladder.terminate = Millis(config.terminate_grace_seconds);
  options.state_directory = config.state_dir;
  options.outputs_root = config.outputs;
  return options;
}

// So that scripts find a port that was chosen by the system.
absl::Status WritePort(const std::string& path, int port) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  const std::string text = absl::StrCat(port, "\n");
  if (!file.valid() ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::FailedPreconditionError(absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const ServerConfig& config,
                                                      std::unique_ptr<SpecChecker> checker) {
  std::unique_ptr<Daemon> daemon(new Daemon(config));
  BLOCKSWAP_RETURN_IF_ERROR(daemon->StartParts(std::move(checker)));
  return daemon;
}

absl::Status Daemon::StartParts(std::unique_ptr<SpecChecker> checker) {
  checker_ = std::move(checker);
  BLOCKSWAP_RETURN_IF_ERROR(LockAndOpen());
  BLOCKSWAP_RETURN_IF_ERROR(StartWorkersSide());
  BLOCKSWAP_RETURN_IF_ERROR(StartClientsSide());
  metrics_->SetReady(true);
  client_server_->SetServing(true);
  LogInfo("serving on unix:{}", config_.socket);
  return absl::OkStatus();
}

absl::Status Daemon::LockAndOpen() {
  BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(config_.state_dir, 0700));
  BLOCKSWAP_ASSIGN_OR_RETURN(state_lock_,
                             FileLock::Acquire(absl::StrCat(config_.state_dir, "/lock")));
  runtime_directory_ = std::filesystem::path(config_.socket).parent_path().string();
  BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(runtime_directory_, 0700));
  BLOCKSWAP_ASSIGN_OR_RETURN(socket_lock_,
                             FileLock::Acquire(absl::StrCat(config_.socket, ".lock")));
  for (const std::string& root : {config_.models, config_.datasets, config_.outputs}) {
    BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(root, 0700));
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(store_, JobStore::Open(absl::StrCat(config_.state_dir, "/jobs.db")));
  metrics_ = std::make_unique<ServerMetrics>(
      BuildInfo{BLOCKSWAP_VERSION, BuildRevision(), grpc::Version()});
  hub_ = std::make_unique<EventHub>();
  store_->SetListeners(
      [this](const std::vector<EventRecord>& events) { hub_->Publish(events); },
      [this](bool is_write, double seconds) { metrics_->StoreTransaction(is_write, seconds); });
  return store_->PruneRequestIds(kRequestIdMicros);
}

absl::Status Daemon::StartWorkersSide() {
  auto nvml = Nvml::Load();
  if (config_.host_budget_bytes == 0)
    config_.host_budget_bytes = base::ReadHostFacts().available_bytes / 2;
  devices_ = std::make_unique<DeviceTable>(nvml.ok() ? *std::move(nvml) : nullptr,
                                           config_.host_budget_bytes, config_.offer_host);
  const std::string attempts = absl::StrCat(runtime_directory_, "/attempts");
  BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(attempts, 0700));
  RpcServerOptions options;
  options.socket_path = absl::StrCat(runtime_directory_, "/workers.sock");
  options.max_receive_bytes = kWorkerMessageBytes;
  worker_service_ = std::make_unique<WorkerServiceImpl>(options.socket_path);
  BLOCKSWAP_ASSIGN_OR_RETURN(worker_server_, RpcServer::Start(options, {worker_service_.get()}));
  BLOCKSWAP_ASSIGN_OR_RETURN(monitor_, ProcessMonitor::Create());
  ProcessLauncherOptions launcher;
  launcher.worker_binary = config_.worker;
  launcher.runtime_directory = attempts;
  launcher.models_root = config_.models;
  launcher.datasets_root = config_.datasets;
  launcher.passed_environment = config_.pass_environment;
  launcher.master_cache_bytes = config_.master_cache_bytes >= 0
                                    ? config_.master_cache_bytes
                                    : base::ReadHostFacts().available_bytes / 4;
  launcher.masters_key = [this](const std::string& job) { return checker_->MastersKey(job); };
  launcher_ = std::make_unique<ProcessLauncher>(std::move(launcher), *worker_service_, *monitor_);
  if (config_.measure_links) {
    link_tester_ = std::make_unique<LinkTester>(
        *store_, *devices_, LinkTesterOptions{config_.worker, config_.pass_environment});
  }
  scheduler_ = std::make_unique<Scheduler>(*store_, *hub_, *devices_, *launcher_, *metrics_,
                                           SchedulerOptionsOf(config_));
  return scheduler_->Start();
}

absl::Status Daemon::StartClientsSide() {
  std::string http_address;
  if (config_.http != "off") {
    HttpContent content;
    content.metrics = [this] { return metrics_->Render(); };
    content.healthy = [this] { return scheduler_->IsAlive(); };
    content.ready = [this] { return metrics_->ready() && store_->writable(); };
    BLOCKSWAP_ASSIGN_OR_RETURN(http_, HttpServer::Start(config_.http, std::move(content)));
    BLOCKSWAP_RETURN_IF_ERROR(
        WritePort(absl::StrCat(config_.state_dir, "/http.port"), http_->port()));
    const size_t colon = config_.http.rfind(':');
    http_address = absl::StrCat(config_.http.substr(0, colon), ":", http_->port());
    LogInfo("metrics on http://{}/metrics", http_address);
  }
  TrainingServiceOptions options;
  options.outputs_root = config_.outputs;
  options.max_unfinished_jobs = config_.max_queued_jobs;
  options.bookmark_interval = Millis(config_.bookmark_seconds);
  context_.reset(new RpcContext{*store_, *hub_, *scheduler_, *devices_, *metrics_, *checker_,
                                TokenMaker(store_->epoch(), store_->secret()), options});
  training_service_ = std::make_unique<TrainingServiceImpl>(*context_);
  ServerFacts facts{BLOCKSWAP_VERSION, BuildRevision(),  http_address,    config_.state_dir,
                    config_.models,    config_.datasets, config_.outputs, WallMicros()};
  admin_service_ = std::make_unique<AdminServiceImpl>(*context_, std::move(facts));
  RpcServerOptions server;
  server.socket_path = config_.socket;
  BLOCKSWAP_ASSIGN_OR_RETURN(
      client_server_, RpcServer::Start(server, {training_service_.get(), admin_service_.get()}));
  return absl::OkStatus();
}

void Daemon::Hurry() { scheduler_->HurryShutdown(); }

void Daemon::Stop() {
  if (std::exchange(stopped_, true)) return;
  LogInfo("stopping");
  if (client_server_ != nullptr) client_server_->SetServing(false);
  if (metrics_ != nullptr) metrics_->SetReady(false);
  if (context_ != nullptr) context_->accepting.store(false, std::memory_order_relaxed);
  // Reads and watches go on while the workers write their checkpoints.
  if (scheduler_ != nullptr) scheduler_->Shutdown(Millis(config_.stop_grace_seconds));
  if (hub_ != nullptr) hub_->Shutdown();
  if (client_server_ != nullptr) client_server_->Shutdown(kStreamGrace);
  if (worker_server_ != nullptr) worker_server_->Shutdown(std::chrono::milliseconds(0));
  http_.reset();
  LogInfo("stopped");
}

Daemon::~Daemon() {
  Stop();
  // Not by member order alone: each of these may be called by one that is freed before it.
  client_server_.reset();
  worker_server_.reset();
  admin_service_.reset();
  training_service_.reset();
  scheduler_.reset();
  link_tester_.reset();
  monitor_.reset();
}

}  // namespace blockswap::server
