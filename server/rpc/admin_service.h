// SPDX-License-Identifier: Apache-2.0
// AdminService: devices and the server itself.
#ifndef BLOCKSWAP_SERVER_RPC_ADMIN_SERVICE_H_
#define BLOCKSWAP_SERVER_RPC_ADMIN_SERVICE_H_

#include <string>

#include "blockswap/v1/admin.grpc.pb.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {

struct ServerFacts {
  std::string version, commit, http_address, state_directory, models_root, datasets_root,
      outputs_root;
  int64_t start_micros = 0;
};

// Thread safety: safe.
class AdminServiceImpl final : public v1::AdminService::CallbackService {
 public:
  using Unary = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  AdminServiceImpl(RpcContext& context, ServerFacts facts)
      : rpc_(context), facts_(std::move(facts)) {}

  Unary* ListDevices(Context*, const v1::ListDevicesRequest*, v1::ListDevicesResponse*) override;
  Unary* GetDevice(Context*, const v1::GetDeviceRequest*, v1::Device*) override;
  Unary* DrainDevice(Context*, const v1::DrainDeviceRequest*, v1::Device*) override;
  Unary* UndrainDevice(Context*, const v1::UndrainDeviceRequest*, v1::Device*) override;
  Unary* GetServerInfo(Context*, const v1::GetServerInfoRequest*, v1::ServerInfo*) override;
  Unary* PauseQueue(Context*, const v1::PauseQueueRequest*, v1::Queue*) override;
  Unary* ResumeQueue(Context*, const v1::ResumeQueueRequest*, v1::Queue*) override;
  Unary* SetLogLevel(Context*, const v1::SetLogLevelRequest*, v1::SetLogLevelResponse*) override;
  Unary* ReloadConfig(Context*, const v1::ReloadConfigRequest*, v1::ReloadConfigResponse*) override;

 private:
  absl::Status FindDevice(const std::string& name, v1::Device* response);

  RpcContext& rpc_;
  const ServerFacts facts_;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_ADMIN_SERVICE_H_
