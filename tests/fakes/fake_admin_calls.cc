// SPDX-License-Identifier: Apache-2.0
// What FakeService answers as the AdminService.
#include "tests/fakes/fake_service.h"

namespace blockswap::testing {

grpc::Status FakeService::CreateToken(grpc::ServerContext*, const v1::CreateTokenRequest* request,
                                      v1::CreateTokenResponse* response) {
  base::MutexLock lock(mutex);
  response->mutable_token()->set_name("tokens/7");
  response->mutable_token()->set_display_name(request->display_name());
  response->mutable_token()->set_role(request->role());
  response->set_secret("bst_made");
  return Note("CreateToken", *request);
}

grpc::Status FakeService::ListTokens(grpc::ServerContext* context,
                                     const v1::ListTokensRequest* request,
                                     v1::ListTokensResponse* response) {
  base::MutexLock lock(mutex);
  const auto shown = context->client_metadata().find("authorization");
  authorizations.push_back(shown == context->client_metadata().end()
                               ? ""
                               : std::string(shown->second.data(), shown->second.size()));
  *response = tokens;
  return Note("ListTokens", *request);
}

grpc::Status FakeService::RevokeToken(grpc::ServerContext*, const v1::RevokeTokenRequest* request,
                                      v1::Token* token) {
  base::MutexLock lock(mutex);
  token->set_name("tokens/7");
  token->set_display_name("ci");
  return Note("RevokeToken", *request);
}

grpc::Status FakeService::DrainDevice(grpc::ServerContext*, const v1::DrainDeviceRequest* request,
                                      v1::Device* device) {
  base::MutexLock lock(mutex);
  device->set_name(request->name());
  device->set_health(v1::Device::HEALTH_DRAINED);
  return Note("DrainDevice", *request);
}

grpc::Status FakeService::UndrainDevice(grpc::ServerContext*,
                                        const v1::UndrainDeviceRequest* request,
                                        v1::Device* device) {
  base::MutexLock lock(mutex);
  device->set_name(request->name());
  device->set_health(v1::Device::HEALTH_HEALTHY);
  return Note("UndrainDevice", *request);
}

grpc::Status FakeService::BackUpStore(grpc::ServerContext*, const v1::BackUpStoreRequest* request,
                                      v1::BackUpStoreResponse* response) {
  base::MutexLock lock(mutex);
  response->set_file("/state/backups/jobs-1.db");
  return Note("BackUpStore", *request);
}

grpc::Status FakeService::ReloadConfig(grpc::ServerContext*, const v1::ReloadConfigRequest* request,
                                       v1::ReloadConfigResponse* response) {
  base::MutexLock lock(mutex);
  response->add_changed("log_level");
  response->add_restart_needed("socket");
  return Note("ReloadConfig", *request);
}

grpc::Status FakeService::GetQueue(grpc::ServerContext*, const v1::GetQueueRequest* request,
                                   v1::Queue* response) {
  base::MutexLock lock(mutex);
  *response = queue;
  return Note("GetQueue", *request);
}

grpc::Status FakeService::PauseQueue(grpc::ServerContext*, const v1::PauseQueueRequest* request,
                                     v1::Queue* response) {
  base::MutexLock lock(mutex);
  *response = queue;
  return Note("PauseQueue", *request);
}

grpc::Status FakeService::ResumeQueue(grpc::ServerContext*, const v1::ResumeQueueRequest* request,
                                      v1::Queue* response) {
  base::MutexLock lock(mutex);
  *response = queue;
  return Note("ResumeQueue", *request);
}

grpc::Status FakeService::GetConfig(grpc::ServerContext*, const v1::GetConfigRequest* request,
                                    v1::GetConfigResponse* response) {
  base::MutexLock lock(mutex);
  *response = config;
  return Note("GetConfig", *request);
}

grpc::Status FakeService::CheckStore(grpc::ServerContext*, const v1::CheckStoreRequest* request,
                                     v1::CheckStoreResponse* response) {
  base::MutexLock lock(mutex);
  *response = check;
  return Note("CheckStore", *request);
}

grpc::Status FakeService::ListDevices(grpc::ServerContext*, const v1::ListDevicesRequest*,
                                      v1::ListDevicesResponse* response) {
  base::MutexLock lock(mutex);
  v1::Device* device = response->add_devices();
  device->set_name("devices/host");
  device->set_kind(v1::Device::KIND_HOST);
  device->set_health(v1::Device::HEALTH_HEALTHY);
  device->set_total_bytes(int64_t{8} << 30);
  return NextFailure();
}

grpc::Status FakeService::GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                                        v1::ServerInfo* info) {
  base::MutexLock lock(mutex);
  info->set_version("9.9.9");
  info->set_metrics_address("127.0.0.1:9464");
  return NextFailure();
}

}  // namespace blockswap::testing
