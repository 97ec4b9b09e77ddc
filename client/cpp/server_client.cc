// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/server_client.h"

#include <sys/un.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/errors.h"
#include "grpcpp/grpcpp.h"

namespace blockswap::client {
namespace {

constexpr absl::Duration kFirstRetryDelay = absl::Milliseconds(50);
// No unary call of the API takes longer; a plan reads file headers only.
constexpr absl::Duration kCallTimeout = absl::Seconds(60);
constexpr int kMaxMessageBytes = 16 << 20;

std::shared_ptr<grpc::Channel> MakeChannel(
    const std::string& target, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  return grpc::CreateCustomChannel(target, credentials, arguments);
}

// "host:7543", "[::1]:7543"; not "unix:..." and no path.
bool IsHostAndPort(const std::string& target) {
  const size_t colon = target.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == target.size()) return false;
  return !absl::StartsWith(target, "unix") && !absl::StartsWith(target, "/") &&
         target.find_first_not_of("0123456789", colon + 1) == std::string::npos;
}

std::string SocketPath(const std::string& target) {
  return absl::StartsWith(target, "unix:") ? target.substr(5) : target;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerClient>> ServerClient::Connect(const std::string& target) {
  ConnectOptions options;
  options.target = target;
  return Connect(options);
}

absl::StatusOr<std::unique_ptr<ServerClient>> ServerClient::Connect(const ConnectOptions& options) {
  const absl::Status known = CheckTarget(options.target);
  if (!known.ok()) return known;
  if (IsHostAndPort(options.target)) return ConnectByTls(options);
  const std::string address = absl::StrCat("unix:", SocketPath(options.target));
  return std::unique_ptr<ServerClient>(new ServerClient(
      address, options.token, MakeChannel(address, grpc::experimental::LocalCredentials(UDS))));
}

absl::Status ServerClient::CheckTarget(const std::string& target) {
  if (IsHostAndPort(target)) return absl::OkStatus();
  const std::string path = SocketPath(target);
  if (path.empty() || path[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("server address is neither a Unix socket nor HOST:PORT: '", target,
                     "'; write unix:/path/to/blockswapd.sock or host:7543"));
  }
  constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kMaxPath) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket path too long: ", path.size(), " bytes, the system allows ", kMaxPath, ": ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ServerClient>> ServerClient::ConnectByTls(
    const ConnectOptions& options) {
  if (options.token.empty() && options.certificate.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.target, " takes a token: name its file with --token-file or BLOCKSWAP_TOKEN_FILE"));
  }
  if (options.certificate.empty() != options.key.empty()) {
    return absl::InvalidArgumentError(
        "a client certificate and its key go together: --tls-cert and --tls-key");
  }
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = options.authority;
  tls.pem_cert_chain = options.certificate;
  tls.pem_private_key = options.key;
  return std::unique_ptr<ServerClient>(new ServerClient(
      options.target, options.token, MakeChannel(options.target, grpc::SslCredentials(tls))));
}

ServerClient::ServerClient(const std::string& target, const std::string& token,
                           const std::shared_ptr<grpc::Channel>& channel)
    : target_(target), token_(token) {
  training_ = v1::TrainingService::NewStub(channel);
  admin_ = v1::AdminService::NewStub(channel);
}

void ServerClient::Cancel() {
  base::MutexLock lock(mutex_);
  cancelled_ = true;
  // Under the lock: a context must not end its life meanwhile.
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
  cancelled_changed_.SignalAll();
}

bool ServerClient::cancelled() const {
  base::MutexLock lock(mutex_);
  return cancelled_;
}

bool ServerClient::Register(grpc::ClientContext* context) {
  base::MutexLock lock(mutex_);
  if (cancelled_) return false;
  if (!token_.empty()) context->AddMetadata("authorization", absl::StrCat("Bearer ", token_));
  contexts_.insert(context);
  return true;
}

void ServerClient::Unregister(grpc::ClientContext* context) {
  base::MutexLock lock(mutex_);
  contexts_.erase(context);
}

bool ServerClient::Pause(absl::Duration duration) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(duration);
  base::MutexLock lock(mutex_);
  while (!cancelled_ && cancelled_changed_.WaitUntil(mutex_, deadline)) {
  }
  return !cancelled_;
}

template <typename Request, typename Response, typename Stub>
absl::StatusOr<Response> ServerClient::Call(Stub& stub,
                                            grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                         const Request&, Response*),
                                            const Request& request, int tries) {
  absl::Duration delay = kFirstRetryDelay;
  absl::Status status;
  for (int i = 0; i < tries; ++i) {
    if (i > 0) {
      Pause(delay);
      delay *= 2;
    }
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    if (!Register(&context)) return absl::CancelledError("cancelled");
    Response response;
    status = ToAbslStatus((stub.*method)(&context, request, &response));
    Unregister(&context);
    if (status.ok()) return response;
    if (cancelled()) return absl::CancelledError("cancelled");
    if (status.code() != absl::StatusCode::kUnavailable) return status;
  }
  return status;
}

absl::StatusOr<v1::Job> ServerClient::CreateJob(const v1::CreateJobRequest& request) {
  if (request.request_id().empty())
    return absl::InvalidArgumentError("CreateJob needs a request_id");
  return Call(*training_, &v1::TrainingService::Stub::CreateJob, request);
}

absl::StatusOr<v1::PlanJobResponse> ServerClient::PlanJob(const v1::PlanJobRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::PlanJob, request);
}

absl::StatusOr<v1::Job> ServerClient::GetJob(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  return Call(*training_, &v1::TrainingService::Stub::GetJob, request);
}

absl::StatusOr<v1::ListJobsResponse> ServerClient::ListJobs(const v1::ListJobsRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::ListJobs, request);
}

absl::StatusOr<v1::Job> ServerClient::UpdateJob(const v1::UpdateJobRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::UpdateJob, request);
}

absl::StatusOr<v1::Job> ServerClient::CancelJob(const v1::CancelJobRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::CancelJob, request);
}

absl::StatusOr<v1::ListJobEventsResponse> ServerClient::ListJobEvents(
    const v1::ListJobEventsRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::ListJobEvents, request);
}

absl::StatusOr<v1::ListMetricPointsResponse> ServerClient::ListMetricPoints(
    const v1::ListMetricPointsRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::ListMetricPoints, request);
}

absl::StatusOr<v1::ListDevicesResponse> ServerClient::ListDevices(
    const v1::ListDevicesRequest& request) {
  return Call(*admin_, &v1::AdminService::Stub::ListDevices, request);
}

absl::StatusOr<v1::ServerInfo> ServerClient::GetServerInfo() {
  return Call(*admin_, &v1::AdminService::Stub::GetServerInfo, v1::GetServerInfoRequest());
}

absl::StatusOr<v1::Job> ServerClient::SuspendJob(const v1::SuspendJobRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::SuspendJob, request);
}

absl::StatusOr<v1::Job> ServerClient::ResumeJob(const v1::ResumeJobRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::ResumeJob, request);
}

absl::StatusOr<v1::Job> ServerClient::CheckpointJob(const v1::CheckpointJobRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::CheckpointJob, request);
}

absl::StatusOr<v1::Job> ServerClient::SampleJob(const v1::SampleJobRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::SampleJob, request);
}

absl::StatusOr<v1::ListAttemptsResponse> ServerClient::ListAttempts(
    const v1::ListAttemptsRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::ListAttempts, request);
}

absl::StatusOr<v1::ListCheckpointsResponse> ServerClient::ListCheckpoints(
    const v1::ListCheckpointsRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::ListCheckpoints, request);
}

absl::StatusOr<v1::Checkpoint> ServerClient::GetCheckpoint(
    const v1::GetCheckpointRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::GetCheckpoint, request);
}

absl::StatusOr<v1::ListTemplatesResponse> ServerClient::ListTemplates(
    const v1::ListTemplatesRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::ListTemplates, request);
}

absl::StatusOr<v1::Job> ServerClient::RetryJob(const v1::RetryJobRequest& request) {
  if (request.request_id().empty())
    return absl::InvalidArgumentError("RetryJob needs a request_id");
  return Call(*training_, &v1::TrainingService::Stub::RetryJob, request);
}

absl::Status ServerClient::DeleteJob(const v1::DeleteJobRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::DeleteJob, request).status();
}

absl::Status ServerClient::DeleteCheckpoint(const v1::DeleteCheckpointRequest& request) {
  return Call(*training_, &v1::TrainingService::Stub::DeleteCheckpoint, request).status();
}

absl::StatusOr<v1::Device> ServerClient::DrainDevice(const v1::DrainDeviceRequest& request) {
  return Call(*admin_, &v1::AdminService::Stub::DrainDevice, request);
}

absl::StatusOr<v1::Device> ServerClient::UndrainDevice(const v1::UndrainDeviceRequest& request) {
  return Call(*admin_, &v1::AdminService::Stub::UndrainDevice, request);
}

absl::StatusOr<v1::Queue> ServerClient::GetQueue(const v1::GetQueueRequest& request) {
  return Call(*admin_, &v1::AdminService::Stub::GetQueue, request);
}

absl::StatusOr<v1::Queue> ServerClient::PauseQueue(const v1::PauseQueueRequest& request) {
  return Call(*admin_, &v1::AdminService::Stub::PauseQueue, request);
}

absl::StatusOr<v1::Queue> ServerClient::ResumeQueue(const v1::ResumeQueueRequest& request) {
  return Call(*admin_, &v1::AdminService::Stub::ResumeQueue, request);
}

absl::StatusOr<v1::GetConfigResponse> ServerClient::GetConfig() {
  return Call(*admin_, &v1::AdminService::Stub::GetConfig, v1::GetConfigRequest());
}

absl::StatusOr<v1::ReloadConfigResponse> ServerClient::ReloadConfig() {
  return Call(*admin_, &v1::AdminService::Stub::ReloadConfig, v1::ReloadConfigRequest());
}

absl::StatusOr<v1::BackUpStoreResponse> ServerClient::BackUpStore() {
  return Call(*admin_, &v1::AdminService::Stub::BackUpStore, v1::BackUpStoreRequest());
}

absl::StatusOr<v1::CheckStoreResponse> ServerClient::CheckStore() {
  return Call(*admin_, &v1::AdminService::Stub::CheckStore, v1::CheckStoreRequest());
}

absl::StatusOr<v1::CreateTokenResponse> ServerClient::CreateToken(
    const v1::CreateTokenRequest& request) {
  return Call(*admin_, &v1::AdminService::Stub::CreateToken, request, /*tries=*/1);
}

absl::StatusOr<v1::ListTokensResponse> ServerClient::ListTokens() {
  return Call(*admin_, &v1::AdminService::Stub::ListTokens, v1::ListTokensRequest());
}

absl::StatusOr<v1::Token> ServerClient::RevokeToken(const std::string& name) {
  v1::RevokeTokenRequest request;
  request.set_name(name);
  return Call(*admin_, &v1::AdminService::Stub::RevokeToken, request);
}

absl::Status ServerClient::Resume(const absl::Status& status, ResumeBackoff* backoff) {
  if (cancelled()) return absl::CancelledError("cancelled");
  if (absl::Now() >= backoff->options().deadline) {
    return absl::DeadlineExceededError("the time given for waiting is over");
  }
  // Ok here: the stream stopped without the server's last word.
  if (!status.ok() && !IsResumable(status)) return status;
  if (backoff->Exhausted()) {
    return status.ok()
               ? absl::UnavailableError("the server ends the stream again and again without a word")
               : status;
  }
  Pause(backoff->NextDelay());
  return cancelled() ? absl::CancelledError("cancelled") : absl::OkStatus();
}

}  // namespace blockswap::client
