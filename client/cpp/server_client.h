// SPDX-License-Identifier: Apache-2.0
// A connection to blockswapd: its calls as functions that return absl::Status, retried where that
// is safe.
#ifndef BLOCKSWAP_CLIENT_CPP_SERVER_CLIENT_H_
#define BLOCKSWAP_CLIENT_CPP_SERVER_CLIENT_H_

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "blockswap/v1/admin.grpc.pb.h"
#include "blockswap/v1/training.grpc.pb.h"
#include "client/cpp/stream_resume.h"
#include "offload/base/mutex.h"

namespace blockswap::client {

struct ConnectOptions {
  std::string target;     // "unix:/path", an absolute path, or "host:port" for TLS
  std::string token;      // empty: none
  std::string authority;  // PEM that the server's certificate is verified with; empty: the system's
  // PEM of the client's own certificate; empty: none.
  std::string certificate, key;
};

// Thread safety: safe. Errors: the server's codes, with DetailsOf();
// Unavailable when no server answers; Cancelled after Cancel().
class ServerClient final {
 public:
  // Does not wait for the server. InvalidArgument: no such target, or TCP without a token or a
  // certificate.
  static absl::StatusOr<std::unique_ptr<ServerClient>> Connect(const ConnectOptions& options);
  static absl::StatusOr<std::unique_ptr<ServerClient>> Connect(const std::string& target);
  // Whether Connect would know what `target` is. InvalidArgument.
  static absl::Status CheckTarget(const std::string& target);

  // `request.request_id` must be set: the call is retried, and only the id makes that one job.
  absl::StatusOr<v1::Job> CreateJob(const v1::CreateJobRequest& request);
  absl::StatusOr<v1::PlanJobResponse> PlanJob(const v1::PlanJobRequest& request);
  absl::StatusOr<v1::Job> GetJob(const std::string& name);
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request);
  // Repeating it is harmless: what is already so stays so.
  absl::StatusOr<v1::Job> UpdateJob(const v1::UpdateJobRequest& request);
  absl::StatusOr<v1::Job> CancelJob(const v1::CancelJobRequest& request);
  absl::StatusOr<v1::Job> SuspendJob(const v1::SuspendJobRequest& request);
  absl::StatusOr<v1::Job> ResumeJob(const v1::ResumeJobRequest& request);
  // `request.request_id` must be set, as in CreateJob.
  absl::StatusOr<v1::Job> RetryJob(const v1::RetryJobRequest& request);
  absl::StatusOr<v1::Job> CheckpointJob(const v1::CheckpointJobRequest& request);
  absl::StatusOr<v1::Job> SampleJob(const v1::SampleJobRequest& request);
  absl::Status DeleteJob(const v1::DeleteJobRequest& request);
  absl::StatusOr<v1::ListAttemptsResponse> ListAttempts(const v1::ListAttemptsRequest& request);
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(
      const v1::ListCheckpointsRequest& request);
  absl::StatusOr<v1::Checkpoint> GetCheckpoint(const v1::GetCheckpointRequest& request);
  absl::Status DeleteCheckpoint(const v1::DeleteCheckpointRequest& request);
  absl::StatusOr<v1::ListTemplatesResponse> ListTemplates(const v1::ListTemplatesRequest& request);
  absl::StatusOr<v1::ListJobEventsResponse> ListJobEvents(const v1::ListJobEventsRequest& request);
  absl::StatusOr<v1::ListMetricPointsResponse> ListMetricPoints(
      const v1::ListMetricPointsRequest& request);
  absl::StatusOr<v1::ListDevicesResponse> ListDevices(const v1::ListDevicesRequest& request);
  absl::StatusOr<v1::Device> DrainDevice(const v1::DrainDeviceRequest& request);
  absl::StatusOr<v1::Device> UndrainDevice(const v1::UndrainDeviceRequest& request);
  absl::StatusOr<v1::ServerInfo> GetServerInfo();
  absl::StatusOr<v1::Queue> GetQueue(const v1::GetQueueRequest& request);
  absl::StatusOr<v1::Queue> PauseQueue(const v1::PauseQueueRequest& request);
  absl::StatusOr<v1::Queue> ResumeQueue(const v1::ResumeQueueRequest& request);
  absl::StatusOr<v1::GetConfigResponse> GetConfig();
  absl::StatusOr<v1::ReloadConfigResponse> ReloadConfig();
  absl::StatusOr<v1::BackUpStoreResponse> BackUpStore();
  absl::StatusOr<v1::CheckStoreResponse> CheckStore();
  // Never retried: a secret whose answer was lost cannot be had again.
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request);
  absl::StatusOr<v1::ListTokensResponse> ListTokens();
  // `name` is tokens/{number} or the display name of a valid one.
  absl::StatusOr<v1::Token> RevokeToken(const std::string& name);

  // Calls `on_event` for every event but bookmarks, until the server says that the watched job is
  // terminal (Ok), `on_event` returns false (Ok), or something fails for good. A stream that stops
  // without the server's word is resumed from its last token, and from a fresh snapshot when the
  // token is too old.
  absl::Status WatchJobs(v1::WatchJobsRequest request, const StreamOptions& options,
                         const std::function<bool(const v1::JobEvent&)>& on_event);

  // Calls `on_chunk` for every piece of the log. With request.follow until the job is terminal,
  // resuming by offset as above.
  absl::Status StreamJobLogs(v1::StreamJobLogsRequest request, const StreamOptions& options,
                             const std::function<bool(const v1::LogChunk&)>& on_chunk);

  // Waits; false, and at once, after Cancel(). Safe on any thread.
  bool Pause(absl::Duration duration);

  // Ends the present and every later call with Cancelled. Safe on any thread.
  void Cancel();

  const std::string& target() const { return target_; }

 private:
  static constexpr int kMaxTries = 4;

  static absl::StatusOr<std::unique_ptr<ServerClient>> ConnectByTls(const ConnectOptions& options);
  ServerClient(const std::string& target, const std::string& token,
               const std::shared_ptr<grpc::Channel>& channel);

  template <typename Request, typename Response, typename Stub>
  absl::StatusOr<Response> Call(Stub& stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, int tries = kMaxTries);

  // Registers the context for Cancel and adds the token; false when Cancel was called before.
  bool Register(grpc::ClientContext* context);
  void Unregister(grpc::ClientContext* context);
  bool cancelled() const;
  // What a stream does after it broke with `status`: Ok to go on, else the error to return.
  absl::Status Resume(const absl::Status& status, ResumeBackoff* backoff);
  // Runs one stream to its end. `token` and so on of `request` are kept up to date; `ended` tells
  // the server's last word.
  absl::Status WatchOnce(v1::WatchJobsRequest* request, const StreamOptions& options,
                         const std::function<bool(const v1::JobEvent&)>& on_event,
                         ResumeBackoff* backoff, bool* finished);
  absl::Status StreamLogsOnce(v1::StreamJobLogsRequest* request, const StreamOptions& options,
                              const std::function<bool(const v1::LogChunk&)>& on_chunk,
                              ResumeBackoff* backoff, bool* finished);

  const std::string target_, token_;
  std::unique_ptr<v1::TrainingService::Stub> training_;
  std::unique_ptr<v1::AdminService::Stub> admin_;

  mutable base::Mutex mutex_;
  base::CondVar cancelled_changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace blockswap::client

#endif  // BLOCKSWAP_CLIENT_CPP_SERVER_CLIENT_H_
