// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/rpc_server.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/config/server_config.h"
#include "tests/server/testing/test_certificates.h"
#include "tests/server/testing/test_server.h"

namespace blockswap::server {
namespace {

using ::testing::HasSubstr;

struct Client {
  std::string authority;  // PEM of the CA that the server is verified with
  PemPair own;            // certificate of the client
  std::string token;
};

std::shared_ptr<grpc::Channel> Connect(int port, const Client& client) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = client.authority;
  options.pem_cert_chain = client.own.certificate;
  options.pem_private_key = client.own.key;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(absl::StrCat("localhost:", port), grpc::SslCredentials(options),
                                   arguments);
}

std::unique_ptr<grpc::ClientContext> ContextOf(const std::string& token) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  if (!token.empty()) context->AddMetadata("authorization", absl::StrCat("Bearer ", token));
  return context;
}

// The answer to "who am I": whether, and as whom, the caller was let in.
grpc::Status List(const std::shared_ptr<grpc::Channel>& channel, const std::string& token = "") {
  v1::ListJobsResponse response;
  return v1::TrainingService::NewStub(channel)->ListJobs(ContextOf(token).get(),
                                                         v1::ListJobsRequest(), &response);
}

grpc::Status CallByName(const std::shared_ptr<grpc::Channel>& channel, const char* method,
                        const std::string& token = "") {
  grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC);
  const auto context = ContextOf(token);
  v1::GetServerInfoRequest empty;
  v1::GetServerInfoRequest answer;
  return grpc::internal::BlockingUnaryCall<v1::GetServerInfoRequest, v1::GetServerInfoRequest,
                                           google::protobuf::MessageLite,
                                           google::protobuf::MessageLite>(
      channel.get(), rpc, context.get(), empty, &answer);
}

class RpcServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const PemPair pair = authority_.Issue({"localhost", "DNS:localhost"});
    WriteTextFile(Path("tls.crt"), pair.certificate, 0644);
    WriteTextFile(Path("tls.key"), pair.key, 0600);
    WriteTextFile(Path("clients.crt"), clients_.certificate(), 0644);
  }
  std::string Path(const char* name) const { return absl::StrCat(directory_.path(), "/", name); }
  void Start(const std::function<void(ServerConfig&)>& adjust = [](ServerConfig&) {}) {
    server_ = std::make_unique<TestServer>(directory_.path(), [&](ServerConfig& config) {
      config.listen = "localhost:0";
      config.tls_certificate = Path("tls.crt");
      config.tls_key = Path("tls.key");
      adjust(config);
    });
  }
  int port() { return server_->daemon().tcp_port(); }
  std::string MakeToken(const std::string& name, const std::string& role) {
    grpc::ClientContext context;
    v1::CreateTokenRequest request;
    request.set_display_name(name);
    request.set_role(role);
    v1::CreateTokenResponse response;
    EXPECT_TRUE(server_->admin().CreateToken(&context, request, &response).ok());
    return response.secret();
  }

  const TemporaryDirectory directory_;
  const TestAuthority authority_{"servers"}, clients_{"clients"};
  std::unique_ptr<TestServer> server_;
};

TEST_F(RpcServerTest, TcpTakesTlsAndATokenAlsoOnLoopback) {
  Start();
  ASSERT_GT(port(), 0);
  const std::string token = MakeToken("ci", "viewer");
  const auto channel = Connect(port(), {authority_.certificate(), {}, ""});
  const grpc::Status without = List(channel);
  EXPECT_EQ(without.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ErrorReason(without), "TOKEN_MISSING");
  EXPECT_EQ(ErrorReason(List(channel, "bst_wrong")), "TOKEN_INVALID");
  EXPECT_TRUE(List(channel, token).ok());
  const auto plain =
      grpc::CreateChannel(absl::StrCat("localhost:", port()), grpc::InsecureChannelCredentials());
  EXPECT_EQ(List(plain, token).error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto distrusting = Connect(port(), {clients_.certificate(), {}, ""});
  EXPECT_EQ(List(distrusting, token).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RpcServerTest, HealthIsForEverybodyAndReflectionForCallersThatAreKnown) {
  Start();
  const std::string token = MakeToken("ci", "viewer");
  const auto channel = Connect(port(), {authority_.certificate(), {}, ""});
  EXPECT_TRUE(CallByName(channel, "/grpc.health.v1.Health/Check").ok());
  const char* reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  EXPECT_EQ(CallByName(channel, reflection).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_NE(CallByName(channel, reflection, token).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(CallByName(channel, "/some.other.Service/Call").error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(RpcServerTest, CertificatesOfClientsBecomeTheirIdentities) {
  Start([this](ServerConfig& config) {
    config.tls_client_ca = Path("clients.crt");
    config.client_identities = {"spiffe://site/watcher=viewer", "submitter.example=submitter"};
  });
  const auto call = [this](const CertificateRequest& request, const TestAuthority& by) {
    return Connect(port(), {authority_.certificate(), by.Issue(request), ""});
  };
  const auto watcher = call({"any", "URI:spiffe://site/watcher"}, clients_);
  EXPECT_TRUE(List(watcher).ok()) << List(watcher).error_message();
  v1::PlanJobResponse plan;
  const grpc::Status denied = v1::TrainingService::NewStub(watcher)->PlanJob(
      ContextOf("").get(), v1::PlanJobRequest(), &plan);
  EXPECT_EQ(ErrorReason(denied), "ACCESS_DENIED");
  const auto submitter = call({"submitter.example", ""}, clients_);
  EXPECT_TRUE(v1::TrainingService::NewStub(submitter)
                  ->PlanJob(ContextOf("").get(), v1::PlanJobRequest(), &plan)
                  .ok());
  EXPECT_EQ(ErrorReason(List(call({"stranger", ""}, clients_))), "CERTIFICATE_UNKNOWN");
  // Not signed by the authority of clients: TLS does not even come up.
  EXPECT_EQ(List(call({"submitter.example", ""}, authority_)).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  // None at all is allowed as long as it is not required; then it takes a token.
  EXPECT_EQ(ErrorReason(List(Connect(port(), {authority_.certificate(), {}, ""}))),
            "TOKEN_MISSING");
}

TEST_F(RpcServerTest, RequiredClientCertificateIsRequired) {
  Start([this](ServerConfig& config) {
    config.tls_client_ca = Path("clients.crt");
    config.tls_require_client_certificate = true;
  });
  const std::string token = MakeToken("ci", "viewer");
  EXPECT_EQ(List(Connect(port(), {authority_.certificate(), {}, ""}), token).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  const auto known = Connect(port(), {authority_.certificate(), clients_.Issue({"any", ""}), ""});
  EXPECT_TRUE(List(known, token).ok());
}

// Row 44: new files are taken up while it runs; a connection that is open goes on.
TEST_F(RpcServerTest, NewCertificateServesNewConnectionsAndOldOnesGoOn) {
  const TemporaryDirectory run;
  const auto store = *JobStore::Open(run.path() + "/jobs.db");
  const auto tokens = *TokenTable::Load(*store);
  const Authenticator authenticator(*tokens, {});
  const auto files = *TlsFiles::Start({Path("tls.crt"), Path("tls.key"), ""}, run.path() + "/tls",
                                      std::chrono::milliseconds(20));
  RpcServerOptions options;
  options.socket_path = run.path() + "/d.sock";
  options.auth = &authenticator;
  options.tcp.address = "localhost:0";
  options.tcp.tls = files->staged();
  options.tcp.refresh = std::chrono::seconds(1);
  const auto server = *RpcServer::Start(options, {});
  const auto healthy = [](const std::shared_ptr<grpc::Channel>& channel) {
    return CallByName(channel, "/grpc.health.v1.Health/Check").ok();
  };
  const auto old_connection = Connect(server->tcp_port(), {authority_.certificate(), {}, ""});
  ASSERT_TRUE(healthy(old_connection));
  const TestAuthority next("next authority");
  const PemPair pair = next.Issue({"localhost", "DNS:localhost"});
  WriteTextFile(Path("tls.crt"), pair.certificate, 0644);
  WriteTextFile(Path("tls.key"), pair.key, 0600);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool renewed = false;
  while (!renewed && std::chrono::steady_clock::now() < deadline)
    renewed = healthy(Connect(server->tcp_port(), {next.certificate(), {}, ""}));
  EXPECT_TRUE(renewed);
  EXPECT_TRUE(healthy(old_connection));
  server->Shutdown(std::chrono::milliseconds(0));
}

TEST_F(RpcServerTest, SocketIsItsOwnersAlone) {
  Start();
  struct stat facts {};
  ASSERT_EQ(::stat(server_->daemon().config().socket.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((directory_.path() + "/run").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
}

TEST(ListenAddressTest, WrongOnesAreExplained) {
  for (const char* wrong : {"", "localhost", ":7543", "host:", "host:x", "host:70000", "::1:7543"})
    EXPECT_FALSE(CheckListenAddress(wrong).ok()) << wrong;
  for (const char* good : {"localhost:0", "0.0.0.0:7543", "[::1]:7543"})
    EXPECT_TRUE(CheckListenAddress(good).ok()) << good;
}

TEST(ListenSettingTest, TcpWithoutTlsIsRefusedAlsoOnLoopback) {
  for (const char* address : {"127.0.0.1:7543", "0.0.0.0:7543", "[::1]:0"}) {
    const auto config = LoadServerConfig({"--listen", address}, "/usr/bin/blockswapd");
    ASSERT_FALSE(config.ok()) << address;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr("tls_certificate and tls_key"));
    EXPECT_THAT(std::string(config.status().message()), HasSubstr("Unix socket"));
  }
  EXPECT_TRUE(
      LoadServerConfig({"--listen", "127.0.0.1:0", "--tls-certificate", "c", "--tls-key", "k"},
                       "/usr/bin/blockswapd")
          .ok());
}

}  // namespace
}  // namespace blockswap::server
