// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/rpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <mutex>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/rpc/call_observer.h"
#include "server/rpc/service_guard.h"

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

// What is not ours and has no guard of its own: over TCP, health is everybody's and the rest takes
// an identity. It cannot answer with details, and what it put into the auth context would stay
// there for the next call on the connection: so our own services authenticate in their guard.
class ForeignServices final : public grpc::AuthMetadataProcessor {
 public:
  ForeignServices(const Authenticator& auth, std::function<void(const absl::Status&)> on_refused)
      : auth_(auth), on_refused_(std::move(on_refused)) {}
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata*) override {
    const auto path = metadata.find(":path");
    if (path == metadata.end())
      return grpc::Status(grpc::StatusCode::INTERNAL, "a call without path");
    for (const char* service : {"/blockswap.v1.TrainingService/", "/blockswap.v1.AdminService/",
                                "/grpc.health.v1.Health/"}) {
      if (path->second.starts_with(service)) return grpc::Status::OK;
    }
    Credentials credentials;
    AddCertificateNames(*context, credentials);
    const auto authorization = metadata.find("authorization");
    if (authorization != metadata.end()) {
      credentials.authorization.assign(authorization->second.data(), authorization->second.size());
      consumed->insert({"authorization", credentials.authorization});
    }
    const absl::Status status = auth_.Identify(credentials).status();
    if (!status.ok() && on_refused_ != nullptr) on_refused_(status);
    return ToGrpcStatus(status);
  }

 private:
  const Authenticator& auth_;
  const std::function<void(const absl::Status&)> on_refused_;
};

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const TcpListener& listener) {
  const auto provider = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      listener.tls.key, listener.tls.certificate, listener.tls.client_ca,
      static_cast<unsigned int>(listener.refresh.count()));
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  if (!listener.tls.client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(listener.requires_client_certificate
                                      ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                      : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

void BoundPeers(const RpcServerOptions& options, grpc::ServerBuilder& builder) {
  const auto millis = [](std::chrono::milliseconds span) { return static_cast<int>(span.count()); };
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, millis(options.keepalive));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, millis(options.keepalive_timeout));
  // Else only two are asked before there is data to send again.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             millis(options.handshake_timeout));
  // gRPC inflates a message whole before it looks at the limit: a few kilobytes could take
  // gigabytes. A call that is compressed answers UNIMPLEMENTED.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder.SetCompressionAlgorithmSupportStatus(algorithm, /*enabled=*/false);
}

// A umask would be the whole process's; the directory is 0700 (or lets one group in), so nobody is
// there before this.
absl::Status OpenSocket(const RpcServerOptions& options) {
  const char* path = options.socket_path.c_str();
  if (options.socket_group >= 0 &&
      ::chown(path, static_cast<uid_t>(-1), static_cast<gid_t>(options.socket_group)) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot give the socket ", options.socket_path, " to the group ",
                     options.socket_group, "; is the server's user a member of it?"));
  }
  if (::chmod(path, options.socket_mode) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot set the mode of ", options.socket_path));
  }
  return absl::OkStatus();
}

// gRPC takes connections from us, see ConnectionAcceptor.
ConnectionAcceptor::Listener MakeListener(
    ListeningSockets on, const std::shared_ptr<grpc::ServerCredentials>& credentials,
    grpc::ServerBuilder& builder) {
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  const std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc_side =
      builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials);
  return {std::move(on), [grpc_side](int connection) {
            grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
            parameters.fd = connection;
            grpc_side->HandleNewConnection(&parameters);
          }};
}

}  // namespace

absl::Status CheckListenAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  const bool bare_v6 = address.find(':') != colon && !absl::StartsWith(address, "[");
  if (colon == std::string::npos || colon == 0 || bare_v6 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "listen address \"", address, "\" is not HOST:PORT, as in 0.0.0.0:7543 or [::]:7543"));
  }
  return absl::OkStatus();
}

RpcServer::RpcServer(std::unique_ptr<grpc::Server> server,
                     std::unique_ptr<ConnectionAcceptor> acceptor, std::string socket_path,
                     int tcp_port)
    : server_(std::move(server)),
      acceptor_(std::move(acceptor)),
      socket_path_(std::move(socket_path)),
      tcp_port_(tcp_port) {}

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
  std::vector<ConnectionAcceptor::Listener> listeners;
  BLOCKSWAP_ASSIGN_OR_RETURN(ListeningSockets on_unix, ListenOnUnix(options.socket_path));
  absl::Cleanup remove_socket = [&options] { ::unlink(options.socket_path.c_str()); };
  BLOCKSWAP_RETURN_IF_ERROR(OpenSocket(options));
  listeners.push_back(
      MakeListener(std::move(on_unix), grpc::experimental::LocalServerCredentials(UDS), builder));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 30000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  BoundPeers(options, builder);
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  builder.SetResourceQuota(grpc::ResourceQuota().Resize(kQuotaBytes));
  int tcp_port = 0;
  if (!options.tcp.address.empty()) {
    BLOCKSWAP_RETURN_IF_ERROR(CheckListenAddress(options.tcp.address));
    const auto credentials = TlsCredentials(options.tcp);
    credentials->SetAuthMetadataProcessor(
        std::make_shared<ForeignServices>(*options.auth, options.on_refused));
    BLOCKSWAP_ASSIGN_OR_RETURN(ListeningSockets on_tcp, ListenOnTcp(options.tcp.address));
    tcp_port = on_tcp.port;
    listeners.push_back(MakeListener(std::move(on_tcp), credentials, builder));
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (options.calls != nullptr) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> observers;
    observers.push_back(std::make_unique<CallObserver>(*options.calls));
    builder.experimental().SetInterceptorCreators(std::move(observers));
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::InternalError(absl::StrCat("gRPC does not start on ", options.socket_path));
  }
  // Only between gRPC's start and its end does it take connections: others would stay open.
  BLOCKSWAP_ASSIGN_OR_RETURN(std::unique_ptr<ConnectionAcceptor> acceptor,
                             ConnectionAcceptor::Start(std::move(listeners)));
  std::move(remove_socket).Cancel();
  return std::unique_ptr<RpcServer>(
      new RpcServer(std::move(server), std::move(acceptor), options.socket_path, tcp_port));
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
  acceptor_.reset();
  server_->Shutdown(std::chrono::system_clock::now() + grace);
}

}  // namespace blockswap::server
