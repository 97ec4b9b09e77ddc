// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/admin_service.h"

#include <google/protobuf/util/time_util.h>
#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/reason.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/watch_stream.h"

namespace blockswap::server {
namespace {

constexpr int64_t kMaxMessageBytes = int64_t{4} << 20;

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* NotYet(grpc::CallbackServerContext* context, const char* verb) {
  return Finish(context, WithReason(absl::UnimplementedError(absl::StrCat(
                                        verb, " is not available in this version of blockswapd")),
                                    "UNIMPLEMENTED"));
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
  return WithReason(absl::NotFoundError(absl::StrCat("no such device: ", name)),
                    "DEVICE_NOT_FOUND");
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

AdminServiceImpl::Unary* AdminServiceImpl::GetServerInfo(Context* context,
                                                         const v1::GetServerInfoRequest*,
                                                         v1::ServerInfo* response) {
  response->set_version(facts_.version);
  response->set_commit(facts_.commit);
  *response->mutable_start_time() =
      google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(facts_.start_micros);
  for (const char* feature : {"watch", "logs", "metric-points", "suspend"})
    response->add_features(feature);
  for (const std::string& name : rpc_.checker.architectures()) response->add_architectures(name);
  response->set_metrics_address(facts_.http_address);
  response->set_state_directory(facts_.state_directory);
  response->set_models_root(facts_.models_root);
  response->set_datasets_root(facts_.datasets_root);
  response->set_outputs_root(facts_.outputs_root);
  v1::Limits* limits = response->mutable_limits();
  limits->set_max_message_bytes(kMaxMessageBytes);
  limits->set_max_spec_bytes(rpc_.options.max_spec_bytes);
  limits->set_max_queued_jobs(rpc_.options.max_unfinished_jobs);
  limits->set_max_watch_streams(rpc_.options.max_streams);
  limits->set_max_labels(32);
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

AdminServiceImpl::Unary* AdminServiceImpl::PauseQueue(Context* context,
                                                      const v1::PauseQueueRequest*, v1::Queue*) {
  return NotYet(context, "PauseQueue");
}
AdminServiceImpl::Unary* AdminServiceImpl::ResumeQueue(Context* context,
                                                       const v1::ResumeQueueRequest*, v1::Queue*) {
  return NotYet(context, "ResumeQueue");
}
AdminServiceImpl::Unary* AdminServiceImpl::ReloadConfig(Context* context,
                                                        const v1::ReloadConfigRequest*,
                                                        v1::ReloadConfigResponse*) {
  return NotYet(context, "ReloadConfig");
}

}  // namespace blockswap::server
