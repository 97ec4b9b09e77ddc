// SPDX-License-Identifier: Apache-2.0
// AdminService: devices and the server itself.
#ifndef BLOCKSWAP_SERVER_RPC_ADMIN_SERVICE_H_
#define BLOCKSWAP_SERVER_RPC_ADMIN_SERVICE_H_

#include <optional>
#include <string>

#include "blockswap/v1/admin.grpc.pb.h"
#include "server/config/live_config.h"
#include "server/rpc/training_service.h"
#include "server/rpc/work_pool.h"

namespace blockswap::server {

struct ServerFacts {
  std::string version, commit, http_address, state_directory, models_root, datasets_root,
      outputs_root;
  int64_t start_micros = 0;
  int64_t max_log_line_bytes = 0, max_log_bytes = 0;
};

// Thread safety: safe.
class AdminServiceImpl final : public v1::AdminService::CallbackService {
 public:
  using Unary = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  AdminServiceImpl(RpcContext& context, LiveConfig& config, ServerFacts facts)
      : rpc_(context), config_(config), facts_(std::move(facts)) {}

  Unary* ListDevices(Context*, const v1::ListDevicesRequest*, v1::ListDevicesResponse*) override;
  Unary* GetDevice(Context*, const v1::GetDeviceRequest*, v1::Device*) override;
  Unary* DrainDevice(Context*, const v1::DrainDeviceRequest*, v1::Device*) override;
  Unary* UndrainDevice(Context*, const v1::UndrainDeviceRequest*, v1::Device*) override;
  Unary* GetServerInfo(Context*, const v1::GetServerInfoRequest*, v1::ServerInfo*) override;
  Unary* GetQueue(Context*, const v1::GetQueueRequest*, v1::Queue*) override;
  Unary* PauseQueue(Context*, const v1::PauseQueueRequest*, v1::Queue*) override;
  Unary* ResumeQueue(Context*, const v1::ResumeQueueRequest*, v1::Queue*) override;
  Unary* SetLogLevel(Context*, const v1::SetLogLevelRequest*, v1::SetLogLevelResponse*) override;
  Unary* ReloadConfig(Context*, const v1::ReloadConfigRequest*, v1::ReloadConfigResponse*) override;
  Unary* GetConfig(Context*, const v1::GetConfigRequest*, v1::GetConfigResponse*) override;
  Unary* BackUpStore(Context*, const v1::BackUpStoreRequest*, v1::BackUpStoreResponse*) override;
  Unary* CheckStore(Context*, const v1::CheckStoreRequest*, v1::CheckStoreResponse*) override;
  // In token_calls.cc.
  Unary* CreateToken(Context*, const v1::CreateTokenRequest*, v1::CreateTokenResponse*) override;
  Unary* ListTokens(Context*, const v1::ListTokensRequest*, v1::ListTokensResponse*) override;
  Unary* RevokeToken(Context*, const v1::RevokeTokenRequest*, v1::Token*) override;

 private:
  absl::Status FindDevice(const std::string& name, v1::Device* response);
  absl::Status FillQueue(v1::Queue* response);
  absl::Status SetPause(const std::string& name, const std::optional<QueuePause>& pause,
                        v1::Queue* response);
  void FillLimits(v1::Limits* limits) const;

  RpcContext& rpc_;
  LiveConfig& config_;
  const ServerFacts facts_;
  // Reads and copies of the whole store take as long as they take.
  WorkPool pool_{/*threads=*/1, /*max_waiting=*/4};
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_RPC_ADMIN_SERVICE_H_
