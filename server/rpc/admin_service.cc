// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/admin_service.h"

#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "offload/base/status_macros.h"
#include "proto/text/utf8.h"
#include "server/base/file_lock.h"
#include "server/base/log.h"
#include "server/base/random_text.h"
#include "server/base/reason.h"
#include "server/base/wall_clock.h"
#include "server/jobs/transitions.h"
#include "server/rpc/paging.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/spec_limits.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/watch_stream.h"

namespace blockswap::server {
namespace {

constexpr int64_t kMaxMessageBytes = int64_t{4} << 20;
constexpr char kQueueName[] = "queues/default";
constexpr size_t kMaxReason = 256;
constexpr const char* kFeatures[] = {"watch",       "logs",   "metric-points", "suspend",
                                     "retry",       "delete", "checkpoints",   "queue",
                                     "templates",   "holds",  "deadlines",     "reload-config",
                                     "store-backup"};

// There is one queue; it may go unnamed.
absl::Status CheckQueueName(const std::string& name) {
  if (name.empty() || name == kQueueName) return absl::OkStatus();
  return WithReason(
      absl::NotFoundError(absl::StrCat("no such queue: ", name, "; there is ", kQueueName)),
      "QUEUE_NOT_FOUND", {{"queue", name}});
}

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* RunOn(WorkPool& pool, grpc::CallbackServerContext* context,
                                std::function<absl::Status()> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool taken =
      pool.Submit([reactor, work = std::move(work)] { reactor->Finish(ToGrpcStatus(work())); });
  if (!taken) {
    reactor->Finish(ToGrpcStatus(
        WithReason(absl::ResourceExhaustedError("others wait for the whole store already"),
                   "QUOTA_EXCEEDED", {{"subject", "requests"}})));
  }
  return reactor;
}

std::string DeviceName(const std::string& name) {
  return std::string(absl::StripPrefix(name, "devices/"));
}

}  // namespace

absl::Status AdminServiceImpl::FindDevice(const std::string& name, v1::Device* response) {
  for (const DeviceState& device : rpc_.devices.List()) {
    if (device.name != DeviceName(name)) continue;
    *response = ToProto(device);
    return absl::OkStatus();
  }
  return WithReason(absl::NotFoundError(absl::StrCat("no such device: ", name)), "DEVICE_NOT_FOUND",
                    {{"device", DeviceName(name)}});
}

AdminServiceImpl::Unary* AdminServiceImpl::ListDevices(Context* context,
                                                       const v1::ListDevicesRequest* request,
                                                       v1::ListDevicesResponse* response) {
  if (request->page_size() < 0) {
    return Finish(context, absl::InvalidArgumentError("page_size: must not be negative"));
  }
  // A machine has few devices: there is one page.
  for (const DeviceState& device : rpc_.devices.List()) *response->add_devices() = ToProto(device);
  return Finish(context, absl::OkStatus());
}

AdminServiceImpl::Unary* AdminServiceImpl::GetDevice(Context* context,
                                                     const v1::GetDeviceRequest* request,
                                                     v1::Device* response) {
  return Finish(context, FindDevice(request->name(), response));
}

AdminServiceImpl::Unary* AdminServiceImpl::DrainDevice(Context* context,
                                                       const v1::DrainDeviceRequest* request,
                                                       v1::Device* response) {
  const std::string reason = request->reason().empty() ? "drained on request" : request->reason();
  const absl::Status drained = rpc_.devices.Drain(DeviceName(request->name()), reason);
  return Finish(context, drained.ok() ? FindDevice(request->name(), response) : drained);
}

AdminServiceImpl::Unary* AdminServiceImpl::UndrainDevice(Context* context,
                                                         const v1::UndrainDeviceRequest* request,
                                                         v1::Device* response) {
  const absl::Status undrained = rpc_.devices.Undrain(DeviceName(request->name()));
  rpc_.scheduler.Wake();
  return Finish(context, undrained.ok() ? FindDevice(request->name(), response) : undrained);
}

void AdminServiceImpl::FillLimits(v1::Limits* limits) const {
  limits->set_max_message_bytes(kMaxMessageBytes);
  limits->set_max_spec_bytes(rpc_.options.max_spec_bytes);
  limits->set_max_queued_jobs(rpc_.max_unfinished_jobs.load(std::memory_order_relaxed));
  limits->set_max_watch_streams(rpc_.options.max_streams);
  limits->set_max_labels(kMaxLabels);
  limits->set_max_string_bytes(kMaxStringBytes);
  limits->set_max_page_size(kMaxPage);
  limits->set_max_metric_points(kMaxMetricPoints);
  limits->set_max_log_line_bytes(facts_.max_log_line_bytes);
  limits->set_max_log_bytes(facts_.max_log_bytes);
  const RetentionLimits retention = rpc_.retention.limits();
  limits->set_max_finished_jobs(retention.max_finished_jobs);
  limits->set_retention_days(retention.days);
  limits->set_max_waiting_events(WatchStream::kRing);
}

AdminServiceImpl::Unary* AdminServiceImpl::GetServerInfo(Context* context,
                                                         const v1::GetServerInfoRequest*,
                                                         v1::ServerInfo* response) {
  response->set_version(facts_.version);
  response->set_commit(facts_.commit);
  *response->mutable_start_time() =
      google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(facts_.start_micros);
  for (const char* feature : kFeatures) response->add_features(feature);
  for (const std::string& name : rpc_.checker.architectures()) response->add_architectures(name);
  response->set_metrics_address(facts_.http_address);
  response->set_state_directory(facts_.state_directory);
  response->set_models_root(facts_.models_root);
  response->set_datasets_root(facts_.datasets_root);
  response->set_outputs_root(facts_.outputs_root);
  FillLimits(response->mutable_limits());
  response->set_accepting_jobs(rpc_.accepting.load(std::memory_order_relaxed) &&
                               rpc_.store.writable());
  return Finish(context, absl::OkStatus());
}

AdminServiceImpl::Unary* AdminServiceImpl::SetLogLevel(Context* context,
                                                       const v1::SetLogLevelRequest* request,
                                                       v1::SetLogLevelResponse*) {
  const auto level = spdlog::level::from_str(request->level());
  // from_str answers "off" for what it does not know.
  if (level == spdlog::level::off && request->level() != "off") {
    return Finish(context,
                  absl::InvalidArgumentError(
                      "level: must be one of trace, debug, info, warning, error, critical, off"));
  }
  spdlog::set_level(level);
  return Finish(context, absl::OkStatus());
}

absl::Status AdminServiceImpl::FillQueue(v1::Queue* response) {
  response->set_name(kQueueName);
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto counts, rpc_.store.CountJobs());
  int64_t waiting = 0, running = 0;
  for (const auto& [state, count] : counts) {
    if (IsWaiting(state)) waiting += count;
    if (HasWorker(state)) running += count;
  }
  response->set_queued_jobs(waiting);
  response->set_running_jobs(running);
  BLOCKSWAP_ASSIGN_OR_RETURN(const int64_t held, rpc_.store.CountHeldJobs());
  response->set_held_jobs(held);
  const std::optional<QueuePause> pause = rpc_.store.queue_pause();
  if (!pause.has_value()) return absl::OkStatus();
  response->set_paused(true);
  response->set_pause_reason(pause->reason);
  *response->mutable_pause_time() =
      google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(pause->since_micros);
  return absl::OkStatus();
}

absl::Status AdminServiceImpl::SetPause(const std::string& name,
                                        const std::optional<QueuePause>& pause,
                                        v1::Queue* response) {
  BLOCKSWAP_RETURN_IF_ERROR(CheckQueueName(name));
  // Asking twice is harmless; the first pause's time and reason stay.
  if (pause.has_value() != rpc_.store.queue_pause().has_value()) {
    BLOCKSWAP_RETURN_IF_ERROR(rpc_.store.SetQueuePause(pause));
    LogInfo("queue {}", pause.has_value() ? "paused" : "resumed");
    rpc_.scheduler.Wake();
  }
  return FillQueue(response);
}

AdminServiceImpl::Unary* AdminServiceImpl::GetQueue(Context* context,
                                                    const v1::GetQueueRequest* request,
                                                    v1::Queue* response) {
  const absl::Status known = CheckQueueName(request->name());
  return Finish(context, known.ok() ? FillQueue(response) : known);
}

AdminServiceImpl::Unary* AdminServiceImpl::PauseQueue(Context* context,
                                                      const v1::PauseQueueRequest* request,
                                                      v1::Queue* response) {
  const std::string reason = proto::Shorten(proto::ToPrintable(request->reason()), kMaxReason);
  return Finish(context, SetPause(request->name(), QueuePause{reason, WallMicros()}, response));
}

AdminServiceImpl::Unary* AdminServiceImpl::ResumeQueue(Context* context,
                                                       const v1::ResumeQueueRequest* request,
                                                       v1::Queue* response) {
  return Finish(context, SetPause(request->name(), std::nullopt, response));
}

AdminServiceImpl::Unary* AdminServiceImpl::ReloadConfig(Context* context,
                                                        const v1::ReloadConfigRequest*,
                                                        v1::ReloadConfigResponse* response) {
  return RunOn(pool_, context, [this, response]() -> absl::Status {
    BLOCKSWAP_ASSIGN_OR_RETURN(const ReloadResult result, config_.Reload());
    for (const std::string& key : result.changed) response->add_changed(key);
    for (const std::string& key : result.restart_needed) response->add_restart_needed(key);
    return absl::OkStatus();
  });
}

AdminServiceImpl::Unary* AdminServiceImpl::GetConfig(Context* context, const v1::GetConfigRequest*,
                                                     v1::GetConfigResponse* response) {
  for (const SettingValue& setting : config_.Settings()) {
    v1::ConfigSetting* out = response->add_settings();
    out->set_key(setting.key);
    out->set_value(ValidUtf8(setting.value));
    out->set_origin(setting.origin == SettingOrigin::kFlag   ? v1::ConfigSetting::ORIGIN_FLAG
                    : setting.origin == SettingOrigin::kFile ? v1::ConfigSetting::ORIGIN_FILE
                                                             : v1::ConfigSetting::ORIGIN_DEFAULT);
    out->set_reloadable(setting.reloadable);
    out->set_help(setting.help);
  }
  response->set_file(ValidUtf8(config_.file()));
  return Finish(context, absl::OkStatus());
}

AdminServiceImpl::Unary* AdminServiceImpl::BackUpStore(Context* context,
                                                       const v1::BackUpStoreRequest*,
                                                       v1::BackUpStoreResponse* response) {
  return RunOn(pool_, context, [this, response]() -> absl::Status {
    // The server's own place and name: where to write is not for callers to say.
    const std::string directory = absl::StrCat(facts_.state_directory, "/backups");
    BLOCKSWAP_RETURN_IF_ERROR(MakeDirectory(directory, 0700));
    const std::string time =
        absl::FormatTime("%Y%m%dT%H%M%S", absl::FromUnixMicros(WallMicros()), absl::UTCTimeZone());
    const std::string file = absl::StrCat(directory, "/jobs-", time, "-", RandomSuffix(4), ".db");
    response->set_sequence(rpc_.store.last_sequence());
    BLOCKSWAP_RETURN_IF_ERROR(rpc_.store.BackUp(file));
    std::error_code error;
    response->set_file(file);
    response->set_bytes(static_cast<int64_t>(std::filesystem::file_size(file, error)));
    return error ? absl::InternalError(absl::StrCat(file, ": ", error.message()))
                 : absl::OkStatus();
  });
}

AdminServiceImpl::Unary* AdminServiceImpl::CheckStore(Context* context,
                                                      const v1::CheckStoreRequest*,
                                                      v1::CheckStoreResponse* response) {
  return RunOn(pool_, context, [this, response]() -> absl::Status {
    BLOCKSWAP_ASSIGN_OR_RETURN(const StoreCheck check, rpc_.store.Check());
    response->set_ok(check.problems.empty());
    for (const std::string& problem : check.problems) response->add_problems(ValidUtf8(problem));
    response->set_bytes(check.bytes);
    response->set_schema_version(check.schema_version);
    return absl::OkStatus();
  });
}

}  // namespace blockswap::server
