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

constexpr int kMaxTries = 4;
constexpr absl::Duration kFirstRetryDelay = absl::Milliseconds(50);
// No unary call of the API takes longer; a plan reads file headers only.
constexpr absl::Duration kCallTimeout = absl::Seconds(60);
constexpr int kMaxMessageBytes = 16 << 20;

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  return grpc::CreateCustomChannel(target, grpc::experimental::LocalCredentials(UDS), arguments);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerClient>> ServerClient::Connect(const std::string& target) {
  const std::string path = absl::StartsWith(target, "unix:") ? target.substr(5) : target;
  if (path.empty() || path[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("server address is not a Unix socket: '", target,
                     "'; write unix:/path/to/blockswapd.sock (TCP is not available yet)"));
  }
  constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kMaxPath) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket path too long: ", path.size(), " bytes, the system allows ", kMaxPath, ": ", path));
  }
  return std::unique_ptr<ServerClient>(new ServerClient(absl::StrCat("unix:", path)));
}

ServerClient::ServerClient(const std::string& target) : target_(target) {
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(target_);
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
  contexts_.insert(context);
  return true;
}

void ServerClient::Unregister(grpc::ClientContext* context) {
  base::MutexLock lock(mutex_);
  contexts_.erase(context);
}

void ServerClient::Sleep(absl::Duration duration) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(duration);
  base::MutexLock lock(mutex_);
  while (!cancelled_ && cancelled_changed_.WaitUntil(mutex_, deadline)) {
  }
}

template <typename Request, typename Response, typename Stub>
absl::StatusOr<Response> ServerClient::Call(Stub& stub,
                                            grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                         const Request&, Response*),
                                            const Request& request) {
  absl::Duration delay = kFirstRetryDelay;
  absl::Status status;
  for (int i = 0; i < kMaxTries; ++i) {
    if (i > 0) {
      Sleep(delay);
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
  Sleep(backoff->NextDelay());
  return cancelled() ? absl::CancelledError("cancelled") : absl::OkStatus();
}

}  // namespace blockswap::client
