// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/rpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"

namespace blockswap::server {
namespace {

constexpr size_t kQuotaBytes = size_t{256} << 20;
constexpr int kMaxStreams = 1024;

// Both plugins are switched on for the whole process, before any server is built.
void InitPlugins() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

}  // namespace

RpcServer::RpcServer(std::unique_ptr<grpc::Server> server, std::string socket_path)
    : server_(std::move(server)), socket_path_(std::move(socket_path)) {}

RpcServer::~RpcServer() {
  Shutdown(std::chrono::milliseconds(0));
  ::unlink(socket_path_.c_str());
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options, const std::vector<grpc::Service*>& services) {
  constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
  if (options.socket_path.size() > kMaxPath) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket path too long: ", options.socket_path.size(), " bytes, the system allows ",
        kMaxPath, ": ", options.socket_path, "; choose another with --socket"));
  }
  InitPlugins();
  // The caller holds the lock of this path: what lies there is the remains of a server that died.
  ::unlink(options.socket_path.c_str());
  grpc::ServerBuilder builder;
  int bound = 0;
  builder.AddListeningPort(absl::StrCat("unix:", options.socket_path),
                           grpc::experimental::LocalServerCredentials(UDS), &bound);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 30000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  builder.SetResourceQuota(grpc::ResourceQuota().Resize(kQuotaBytes));
  for (grpc::Service* service : services) builder.RegisterService(service);
  // A umask would be the whole process's; the directory is 0700, so nobody gets in before the
  // chmod.
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || bound == 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", options.socket_path));
  }
  ::chmod(options.socket_path.c_str(), 0600);
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(server), options.socket_path));
}

void RpcServer::SetServing(bool serving) {
  auto* health = server_->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus(serving);
  health->SetServingStatus("blockswap.v1.TrainingService", serving);
  // Alive as long as it answers at all.
  health->SetServingStatus("liveness", true);
}

void RpcServer::Shutdown(std::chrono::milliseconds grace) {
  server_->Shutdown(std::chrono::system_clock::now() + grace);
}

}  // namespace blockswap::server
