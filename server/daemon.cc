// SPDX-License-Identifier: Apache-2.0
#include "server/daemon.h"

#include <fcntl.h>
#include <grp.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "offload/base/host_facts.h"
#include "offload/base/status_macros.h"
#include "server/base/log.h"
#include "server/base/random_text.h"
#include "server/base/wall_clock.h"
#include "server/build_revision.h"
#include "server/store/store_file.h"
#include "server/web/web_routes.h"

namespace blockswap::server {
namespace {

constexpr int kWorkerMessageBytes = 1 << 20;
constexpr int64_t kRequestIdMicros = int64_t{7} * 24 * 3600 * 1000000;
constexpr std::chrono::milliseconds kDevicePeriod{1000};
constexpr std::chrono::milliseconds kTlsInterval{10000};
// For streams to write their END after the workers are gone.
constexpr std::chrono::milliseconds kStreamGrace{2000};
// However many scrape: the text is made at most this often.
constexpr std::chrono::milliseconds kMetricsAge{200};

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
  options.queue.max_jobs_per_device = static_cast<int>(config.max_jobs_per_device);
  options.queue.aging =
      std::chrono::microseconds(static_cast<int64_t>(config.priority_aging_seconds * 1e6));
  options.state_directory = config.state_dir;
  options.outputs_root = config.outputs;
  options.host_files = config.host_files;
  return options;
}

RetentionLimits RetentionOf(const ServerConfig& config) {
  return {config.retention_days, config.max_finished_jobs};
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

// Members may pass through the directory, not read it. Returns the group's number.
absl::StatusOr<int64_t> LetGroupIn(const std::string& name, const std::string& directory) {
  struct group entry {};
  struct group* found = nullptr;
  std::string buffer(16 << 10, '\0');
  if (::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("socket_group: no group ", name));
  }
  if (::chown(directory.c_str(), static_cast<uid_t>(-1), entry.gr_gid) != 0 ||
      ::chmod(directory.c_str(), 0710) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("socket_group: cannot let ", name, " into ",
                                                      directory,
                                                      "; is the server's user a member?"));
  }
  return int64_t{entry.gr_gid};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const ServerConfig& config,
                                                      std::unique_ptr<SpecChecker> checker) {
  std::unique_ptr<Daemon> daemon(new Daemon(config));
  const absl::Status started = daemon->StartParts(std::move(checker));
  // Damage may show only when recovery reads the rows.
  if (!started.ok()) return WithRemedy(started, StoreFileOf(config.state_dir));
  return daemon;
}

absl::Status Daemon::StartParts(std::unique_ptr<SpecChecker> checker) {
  checker_ = std::move(checker);
  BLOCKSWAP_RETURN_IF_ERROR(LockAndOpen());
  BLOCKSWAP_RETURN_IF_ERROR(StartAuthentication());
  StartCollectors();
  BLOCKSWAP_RETURN_IF_ERROR(StartHttp());
  BLOCKSWAP_RETURN_IF_ERROR(StartWorkersSide());
  scheduling_.store(true, std::memory_order_release);
  BLOCKSWAP_RETURN_IF_ERROR(StartClientsSide());
  metrics_->SetReady(true);
  client_server_->SetServing(true);
  LogInfo("serving on unix:{}", config_.socket);
  TellSystemd("READY=1");
  return absl::OkStatus();
}

void Daemon::TellSystemd(const char* state) const {
  const absl::Status told = systemd_.Notify(state);
  if (!told.ok()) LogWarning("{}", std::string(told.message()));
}

std::optional<CgroupRoot> Daemon::FindCgroups() const {
  auto found = CgroupRoot::Detect(ToHex(Sha256(store_->epoch())).substr(0, 12));
  if (!found.ok()) {
    LogInfo("workers get no control groups: {}", std::string(found.status().message()));
    return std::nullopt;
  }
  LogInfo("workers get control groups in {}; they limit {}", found->directory(),
          found->limits_memory() && found->limits_processes() ? "memory and processes"
          : found->limits_memory()                            ? "memory"
          : found->limits_processes()                         ? "processes"
                                                              : "nothing");
  return *std::move(found);
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
  BLOCKSWAP_ASSIGN_OR_RETURN(store_, JobStore::Open(StoreFileOf(config_.state_dir)));
  metrics_ = std::make_unique<ServerMetrics>(
      BuildInfo{BLOCKSWAP_VERSION, BuildRevision(), grpc::Version(), BuildTorch(), BuildCuda()});
  hub_ = std::make_unique<EventHub>();
  store_->SetListeners(
      [this](const std::vector<EventRecord>& events) { hub_->Publish(events); },
      [this](bool is_write, double seconds) { metrics_->StoreTransaction(is_write, seconds); });
  return store_->PruneRequestIds(kRequestIdMicros);
}

absl::Status Daemon::StartWorkersSide() {
  GpuDriverOptions gpus = GpuDriverOptionsOfEnvironment();
  gpus.library = config_.gpu_library;
  GpuDriver driver = OpenGpuDriver(gpus);
  if (!driver.problem.empty()) LogError("GPUs cannot be used: {}", driver.problem);
  if (config_.host_budget_bytes == 0)
    config_.host_budget_bytes = base::ReadHostFacts().available_bytes / 2;
  devices_ = std::make_unique<DeviceTable>(std::move(driver), config_.host_budget_bytes,
                                           config_.offer_host);
  devices_->StartPolling(kDevicePeriod);
  devices_->TakeXidsFrom(xids_);
  const std::string attempts = absl::StrCat(runtime_directory_, "/attempts");
  BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(attempts, 0700));
  RpcServerOptions options;
  options.socket_path = absl::StrCat(runtime_directory_, "/workers.sock");
  options.max_receive_bytes = kWorkerMessageBytes;
  worker_service_ = std::make_unique<WorkerServiceImpl>(options.socket_path);
  BLOCKSWAP_ASSIGN_OR_RETURN(monitor_, ProcessMonitor::Create());
  ProcessLauncherOptions launcher;
  launcher.worker_binary = config_.worker;
  launcher.runtime_directory = attempts;
  launcher.models_root = config_.models;
  launcher.confinement = config_.confine_workers;
  launcher.datasets_root = config_.datasets;
  launcher.passed_environment = config_.pass_environment;
  launcher.cgroups = FindCgroups();
  launcher.host_files = config_.host_files;
  launcher.worker_limits.memory_bytes = config_.worker_memory_limit_bytes;
  launcher.master_cache_bytes = config_.master_cache_bytes >= 0
                                    ? config_.master_cache_bytes
                                    : base::ReadHostFacts().available_bytes / 4;
  launcher_ = std::make_unique<ProcessLauncher>(std::move(launcher), *worker_service_, *monitor_);
  if (config_.measure_links) {
    link_tester_ = std::make_unique<LinkTester>(
        *store_, *devices_, LinkTesterOptions{config_.worker, config_.pass_environment});
  }
  prober_ =
      std::make_unique<DeviceProber>(LinkTrialOptions{config_.worker, config_.pass_environment});
  SchedulerOptions scheduler = SchedulerOptionsOf(config_);
  scheduler.probe_device = [this](const DeviceState& device, SchedulerOptions::Verdict verdict) {
    prober_->Probe(device, std::move(verdict));
  };
  scheduler.on_tick = [this] { TellSystemd("WATCHDOG=1"); };
  scheduler_ = std::make_unique<Scheduler>(*store_, *hub_, *devices_, *launcher_, *metrics_,
                                           std::move(scheduler));
  // Workers that outlived an earlier server try to attach all the time: those that are to be
  // adopted must be known before there is a socket.
  BLOCKSWAP_RETURN_IF_ERROR(scheduler_->Recover());
  BLOCKSWAP_ASSIGN_OR_RETURN(worker_server_, RpcServer::Start(options, {worker_service_.get()}));
  scheduler_->Start();
  return absl::OkStatus();
}

absl::Status Daemon::StartHttp() {
  HttpContent content;
  content.metrics = [this] { return *metrics_->RenderAtMost(kMetricsAge); };
  content.healthy = [this] {
    return !scheduling_.load(std::memory_order_acquire) || scheduler_->IsAlive();
  };
  content.ready = [this] {
    return metrics_->ready() && store_->writable() && devices_->HasUsable();
  };
  if (config_.http_auth) {
    // What HTTP shows is not told apart by tenant.
    content.authorize = [this](const std::string& authorization) {
      const auto caller = authenticator_->Identify({authorization, false, {}});
      const bool may = caller.ok() && caller->role >= Role::kViewer && caller->sees_all_tenants();
      if (!may) {
        metrics_->AuthFailed(caller.ok() ? "access_denied" : AuthFailureLabel(caller.status()));
      }
      return may;
    };
  }
  const auto start = [this](const char* name, const std::string& address, HttpContent what,
                            HttpReach reach) -> absl::StatusOr<std::unique_ptr<HttpServer>> {
    if (address == "off") return nullptr;
    auto started = HttpServer::Start(address, std::move(what), reach);
    if (!started.ok() && config_.http_optional) {
      LogWarning("{}; going on without it", std::string(started.status().message()));
      return nullptr;
    }
    BLOCKSWAP_RETURN_IF_ERROR(started.status());
    BLOCKSWAP_RETURN_IF_ERROR(
        WritePort(absl::StrCat(config_.state_dir, "/", name, ".port"), (*started)->port()));
    return started;
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(probes_, start("probes", config_.probes, content, HttpReach::kProbes));
  if (config_.web && config_.http != "off") {
    gateway_ = std::make_unique<JsonGateway>(config_.socket);
    content.routes = WebRoutes(*gateway_, metrics_->slots().live());
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(http_,
                             start("http", config_.http, std::move(content), HttpReach::kLoopback));
  if (http_ == nullptr) return absl::OkStatus();
  const size_t colon = config_.http.rfind(':');
  http_address_ = absl::StrCat(config_.http.substr(0, colon), ":", http_->port());
  LogInfo("metrics{} on http://{}/", config_.web ? " and page" : "", http_address_);
  return absl::OkStatus();
}

absl::Status Daemon::StartClientsSide() {
  TrainingServiceOptions options;
  options.outputs_root = config_.outputs;
  retention_ = std::make_unique<RetentionKeeper>(*store_, RetentionOf(config_));
  context_.reset(new RpcContext{*store_, *hub_, *scheduler_, *devices_, *metrics_, *checker_,
                                TokenMaker(store_->epoch(), store_->secret()),
                                TemplateCatalog(config_.templates), *retention_, options,
                                *authenticator_, *call_limits_, audit_log_.get()});
  Apply(config_);
  live_config_ =
      std::make_unique<LiveConfig>(given_, [this](const ServerConfig& config) { Apply(config); });
  training_service_ = std::make_unique<TrainingServiceImpl>(*context_);
  ServerFacts facts{BLOCKSWAP_VERSION, BuildRevision(),  http_address_,   config_.state_dir,
                    config_.models,    config_.datasets, config_.outputs, WallMicros()};
  facts.max_log_bytes = AttemptLogLimits().total_bytes;
  facts.max_log_line_bytes = kMaxLogLineBytes;
  admin_service_ = std::make_unique<AdminServiceImpl>(*context_, *live_config_, std::move(facts));
  guarded_training_ = std::make_unique<GuardedTrainingService>(*context_, *training_service_);
  guarded_admin_ = std::make_unique<GuardedAdminService>(*context_, *admin_service_);
  return StartClientServer();
}

absl::Status Daemon::StartAuthentication() {
  BLOCKSWAP_ASSIGN_OR_RETURN(tokens_, TokenTable::Load(*store_));
  BLOCKSWAP_ASSIGN_OR_RETURN(auto certificates, ParseClientIdentities(config_.client_identities));
  authenticator_ = std::make_unique<Authenticator>(*tokens_, std::move(certificates));
  CallLimitOptions limits;
  limits.calls_per_second = config_.tenant_calls_per_second;
  limits.burst = 4 * config_.tenant_calls_per_second;
  limits.streams = config_.tenant_streams;
  call_limits_ = std::make_unique<CallLimits>(limits);
  if (config_.audit_log == "off") return absl::OkStatus();
  const std::string path = config_.audit_log.empty()
                               ? absl::StrCat(config_.state_dir, "/audit.jsonl")
                               : config_.audit_log;
  BLOCKSWAP_ASSIGN_OR_RETURN(audit_log_, AuditLog::Open(path));
  return absl::OkStatus();
}

absl::StatusOr<RpcServerOptions> Daemon::ListenerOptions() {
  RpcServerOptions options;
  options.socket_path = config_.socket;
  options.calls = &metrics_->calls();
  options.auth = authenticator_.get();
  options.on_refused = [this](const absl::Status& status) {
    metrics_->AuthFailed(AuthFailureLabel(status));
  };
  if (!config_.socket_group.empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(options.socket_group,
                               LetGroupIn(config_.socket_group, runtime_directory_));
    options.socket_mode = 0660;
  }
  if (config_.listen.empty()) return options;
  BLOCKSWAP_ASSIGN_OR_RETURN(
      tls_files_,
      TlsFiles::Start(
          {config_.tls_certificate, config_.tls_key, config_.tls_client_ca},
          absl::StrCat(runtime_directory_, "/tls"), kTlsInterval, [this](absl::Time end) {
            metrics_->SetCertificateExpiry(absl::ToDoubleSeconds(end - absl::UnixEpoch()));
          }));
  options.tcp.address = config_.listen;
  options.tcp.tls = tls_files_->staged();
  options.tcp.requires_client_certificate = config_.tls_require_client_certificate;
  return options;
}

absl::Status Daemon::StartClientServer() {
  BLOCKSWAP_ASSIGN_OR_RETURN(const RpcServerOptions options, ListenerOptions());
  BLOCKSWAP_ASSIGN_OR_RETURN(
      client_server_, RpcServer::Start(options, {guarded_training_.get(), guarded_admin_.get()}));
  if (config_.listen.empty()) return absl::OkStatus();
  LogInfo("serving on port {} of {} with TLS", client_server_->tcp_port(), config_.listen);
  return WritePort(absl::StrCat(config_.state_dir, "/grpc.port"), client_server_->tcp_port());
}

void Daemon::Apply(const ServerConfig& config) {
  spdlog::set_level(spdlog::level::from_str(config.log_level));
  context_->max_unfinished_jobs.store(config.max_queued_jobs, std::memory_order_relaxed);
  context_->bookmark_micros.store(ToMicros(config.bookmark_seconds).count(),
                                  std::memory_order_relaxed);
  retention_->SetLimits(RetentionOf(config));
}

void Daemon::Reload() {
  const auto result = live_config_->Reload();
  if (!result.ok()) return LogError("reload: {}", std::string(result.status().message()));
  LogInfo("reload: {} settings changed, {} wait for a restart", result->changed.size(),
          result->restart_needed.size());
}

void Daemon::Hurry() { scheduler_->HurryShutdown(); }

void Daemon::Stop() {
  if (std::exchange(stopped_, true)) return;
  LogInfo("stopping");
  TellSystemd("STOPPING=1");
  if (client_server_ != nullptr) client_server_->SetServing(false);
  if (metrics_ != nullptr) metrics_->SetReady(false);
  if (context_ != nullptr) context_->accepting.store(false, std::memory_order_relaxed);
  // Reads and watches go on while the workers write their checkpoints.
  if (scheduler_ != nullptr) scheduler_->Shutdown(Millis(config_.stop_grace_seconds));
  if (hub_ != nullptr) hub_->Shutdown();
  if (client_server_ != nullptr) client_server_->Shutdown(kStreamGrace);
  if (worker_server_ != nullptr) worker_server_->Shutdown(std::chrono::milliseconds(0));
  http_.reset();
  probes_.reset();
  LogInfo("stopped");
}

Daemon::~Daemon() {
  Stop();
  // Not by member order alone: each of these may be called by one that is freed before it.
  client_server_.reset();
  tls_files_.reset();
  guarded_admin_.reset();
  guarded_training_.reset();
  worker_server_.reset();
  admin_service_.reset();
  training_service_.reset();
  prober_.reset();
  retention_.reset();
  scheduler_.reset();
  collectors_.reset();
  link_tester_.reset();
  monitor_.reset();
}

}  // namespace blockswap::server
