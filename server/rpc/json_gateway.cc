// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/json_gateway.h"

#include <google/protobuf/message.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "blockswap/v1/admin.grpc.pb.h"
#include "blockswap/v1/training.grpc.pb.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/rpc/json_answer.h"
#include "server/rpc/json_conversion.h"
#include "server/rpc/json_watch.h"

namespace blockswap::server {
namespace {

using Json = nlohmann::json;
using Message = google::protobuf::Message;

constexpr char kPrefix[] = "/api/v1/";
constexpr std::chrono::seconds kCallTimeout{10};
constexpr size_t kMaxLogBytes = size_t{1} << 20;  // of one answer; the rest is for the next
constexpr int64_t kDefaultTailLines = 500;
constexpr int kMaxAnswerBytes = 64 << 20;  // a page of a thousand jobs with their plans

void SetText(Message* message, const char* field, const std::string& value) {
  message->GetReflection()->SetString(message, message->GetDescriptor()->FindFieldByName(field),
                                      value);
}

// An identifier in a path may hold no more than names do: nothing that could mean another path.
bool IsName(const std::string& segment) {
  if (segment.empty() || segment.size() > 64) return false;
  for (const char c : segment) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_';
    if (!good) return false;
  }
  return true;
}

struct Call {
  std::vector<std::string> pattern;  // segments below /api/v1; "*" is a name
  size_t resource_segments;          // the first of them name the resource
  std::function<absl::StatusOr<std::string>(const HttpRequest&, const std::string& resource)> run;
};

// A unary call whose request names the resource in `field` (null: it names none).
template <typename Stub, typename Request, typename Response>
Call Unary(const char* pattern, size_t resource_segments, const char* field, Stub& stub,
           grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*)) {
  return {absl::StrSplit(pattern, '/'), resource_segments,
          [field, &stub, method](const HttpRequest& http,
                                 const std::string& resource) -> absl::StatusOr<std::string> {
            Request request;
            BLOCKSWAP_RETURN_IF_ERROR(FillFromQuery(http, &request));
            if (field != nullptr) SetText(&request, field, resource);
            grpc::ClientContext context;
            context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
            PassOn(http, context);
            Response response;
            BLOCKSWAP_RETURN_IF_ERROR(FromGrpcStatus((stub.*method)(&context, request, &response)));
            return ToJson(response);
          }};
}

// What is there of a log, up to a limit, as one answer: the text is text, not base64.
absl::StatusOr<std::string> ReadLog(v1::TrainingService::Stub& stub, const HttpRequest& http,
                                    const std::string& resource) {
  v1::StreamJobLogsRequest request;
  BLOCKSWAP_RETURN_IF_ERROR(FillFromQuery(http, &request));
  if (request.follow()) {
    return absl::InvalidArgumentError("follow: is for streams; ask again from next_offset instead");
  }
  if (request.from_case() == v1::StreamJobLogsRequest::FROM_NOT_SET) {
    request.set_tail_lines(kDefaultTailLines);
  }
  request.set_name(resource);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  PassOn(http, context);
  const auto stream = stub.StreamJobLogs(&context, request);
  std::string text;
  int64_t offset = -1, next_offset = request.offset();
  int attempt = request.attempt();
  bool complete = true;
  v1::LogChunk chunk;
  while (stream->Read(&chunk)) {
    if (chunk.attempt() != 0) attempt = chunk.attempt();
    if (chunk.text().empty()) continue;
    if (offset < 0) offset = chunk.offset();
    text += chunk.text();
    next_offset =
        std::max(chunk.next_offset(), chunk.offset() + static_cast<int64_t>(chunk.text().size()));
    if (text.size() < kMaxLogBytes) continue;
    complete = false;
    context.TryCancel();
    break;
  }
  const grpc::Status status = stream->Finish();
  if (!status.ok() && complete) return FromGrpcStatus(status);
  const Json json = {{"attempt", attempt},
                     {"offset", offset < 0 ? next_offset : offset},
                     {"next_offset", next_offset},
                     {"complete", complete},
                     {"text", text}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::shared_ptr<grpc::Channel> Connect(const std::string& socket_path) {
  grpc::ChannelArguments arguments;
  // Not the connection of another server that this process had on the same path.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  return grpc::CreateCustomChannel(absl::StrCat("unix:", socket_path),
                                   grpc::experimental::LocalCredentials(UDS), arguments);
}

}  // namespace

struct JsonGateway::Impl {
  explicit Impl(const std::string& socket_path)
      : channel(Connect(socket_path)),
        training(v1::TrainingService::NewStub(channel)),
        admin(v1::AdminService::NewStub(channel)) {
    using Training = v1::TrainingService::Stub;
    using Admin = v1::AdminService::Stub;
    calls.push_back(Unary("jobs", 0, nullptr, *training, &Training::ListJobs));
    calls.push_back(Unary("jobs/*", 2, "name", *training, &Training::GetJob));
    calls.push_back(Unary("jobs/*/events", 2, "parent", *training, &Training::ListJobEvents));
    calls.push_back(Unary("jobs/*/attempts", 2, "parent", *training, &Training::ListAttempts));
    calls.push_back(
        Unary("jobs/*/checkpoints", 2, "parent", *training, &Training::ListCheckpoints));
    calls.push_back(Unary("jobs/*/checkpoints/*", 4, "name", *training, &Training::GetCheckpoint));
    calls.push_back(Unary("jobs/*/metrics", 2, "name", *training, &Training::ListMetricPoints));
    calls.push_back(
        {{"jobs", "*", "logs"}, 2, [this](const HttpRequest& request, const std::string& resource) {
           return ReadLog(*training, request, resource);
         }});
    calls.push_back(Unary("templates", 0, nullptr, *training, &Training::ListTemplates));
    calls.push_back(Unary("templates/*", 2, "name", *training, &Training::GetTemplate));
    calls.push_back(Unary("devices", 0, nullptr, *admin, &Admin::ListDevices));
    calls.push_back(Unary("devices/*", 2, "name", *admin, &Admin::GetDevice));
    calls.push_back(Unary("queue", 0, nullptr, *admin, &Admin::GetQueue));
    calls.push_back(Unary("server", 0, nullptr, *admin, &Admin::GetServerInfo));
    calls.push_back(Unary("config", 0, nullptr, *admin, &Admin::GetConfig));
  }

  const Call* Find(const std::vector<std::string>& segments) const {
    for (const Call& call : calls) {
      bool fits = call.pattern.size() == segments.size();
      for (size_t i = 0; fits && i < segments.size(); ++i) {
        fits = call.pattern[i] == "*" ? IsName(segments[i]) : call.pattern[i] == segments[i];
      }
      if (fits) return &call;
    }
    return nullptr;
  }

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::TrainingService::Stub> training;
  std::unique_ptr<v1::AdminService::Stub> admin;
  std::vector<Call> calls;
};

JsonGateway::JsonGateway(const std::string& socket_path)
    : impl_(std::make_unique<Impl>(socket_path)) {}
JsonGateway::~JsonGateway() = default;

HttpResponse JsonGateway::Answer(const HttpRequest& request) {
  const std::vector<std::string> segments =
      absl::StrSplit(absl::StripPrefix(request.path, kPrefix), '/');
  const Call* call = impl_->Find(segments);
  if (call == nullptr) {
    return JsonError(WithReason(absl::NotFoundError(absl::StrCat("no such path: ", request.path)),
                                "PATH_NOT_FOUND"));
  }
  const std::string resource =
      absl::StrJoin(segments.begin(),
                    segments.begin() + static_cast<std::ptrdiff_t>(call->resource_segments), "/");
  absl::StatusOr<std::string> json = call->run(request, resource);
  return json.ok() ? JsonAnswer(*std::move(json)) : JsonError(json.status());
}

absl::StatusOr<std::unique_ptr<JsonWatch>> JsonGateway::Watch(const HttpRequest& http) {
  v1::WatchJobsRequest request;
  BLOCKSWAP_RETURN_IF_ERROR(FillFromQuery(http, &request));
  if (!http.last_event_id.empty()) {
    std::string token;
    if (!absl::WebSafeBase64Unescape(http.last_event_id, &token)) {
      return absl::InvalidArgumentError("Last-Event-ID: is no id of an event of this stream");
    }
    request.set_resume_token(token);
    request.set_include_snapshot(false);
  }
  auto watch = std::make_unique<QueuedWatch>();
  BLOCKSWAP_RETURN_IF_ERROR(watch->Start(*impl_->training, http, request));
  return watch;
}

absl::StatusOr<std::string> JsonGateway::OutputDirectory(const std::string& job,
                                                         const HttpRequest& http) {
  if (!IsName(job)) return JobNotFound(job);
  v1::GetJobRequest request;
  request.set_name(absl::StrCat("jobs/", job));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  PassOn(http, context);
  v1::Job response;
  BLOCKSWAP_RETURN_IF_ERROR(FromGrpcStatus(impl_->training->GetJob(&context, request, &response)));
  return response.output_directory();
}

}  // namespace blockswap::server
