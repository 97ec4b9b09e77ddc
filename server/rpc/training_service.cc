// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/training_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/rpc/log_stream.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/service_guard.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/watch_stream.h"

namespace blockswap::server {
namespace {

constexpr size_t kMaxWaiting = 256;

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// A worker without prompts would hear it and do nothing.
absl::Status CanSample(const absl::StatusOr<JobRecord>& job) {
  BLOCKSWAP_RETURN_IF_ERROR(job.status());
  v1::JobSpec spec;
  if (!spec.ParseFromString(job->spec) || !spec.sampling().prompts().empty()) {
    return absl::OkStatus();
  }
  return WithReason(absl::FailedPreconditionError(absl::StrCat(
                        "job ", job->id, " has no sampling.prompts, so there is nothing to sample")),
                    "NO_PROMPTS", {{"job", job->id}});
}

}  // namespace

TrainingServiceImpl::TrainingServiceImpl(RpcContext& context)
    : rpc_(context), pool_(/*threads=*/2, kMaxWaiting) {}

TrainingServiceImpl::Unary* TrainingServiceImpl::RunOnPool(Context* context,
                                                           std::function<absl::Status()> work) {
  Unary* reactor = context->DefaultReactor();
  const bool taken =
      pool_.Submit([reactor, work = std::move(work)] { reactor->Finish(ToGrpcStatus(work())); });
  if (!taken) {
    reactor->Finish(ToGrpcStatus(
        WithReason(absl::ResourceExhaustedError(absl::StrCat(
                       "too many requests wait to be worked on, ", kMaxWaiting,
                       " of at most as many; try again in a moment")),
                   "QUOTA_EXCEEDED", {{"subject", "requests"}})));
  }
  return reactor;
}

absl::Status TrainingServiceImpl::Fill(const absl::StatusOr<JobRecord>& job, v1::JobView view,
                                       v1::Job* response) {
  BLOCKSWAP_RETURN_IF_ERROR(job.status());
  JobRecord shown = *job;
  std::optional<int64_t> position = rpc_.scheduler.ShowPlace(&shown);
  if (!position.has_value()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(position, rpc_.store.QueuePosition(*job));
  }
  *response = ToProto(shown, view, *position);
  return absl::OkStatus();
}

TrainingServiceImpl::Unary* TrainingServiceImpl::CreateJob(Context* context,
                                                           const v1::CreateJobRequest* request,
                                                           v1::Job* response) {
  const std::string tenant = IdentityOf(rpc_, *context).tenant;
  return RunOnPool(context, [this, tenant, request, response] {
    return DoCreateJob(tenant, *request, response);
  });
}

TrainingServiceImpl::Unary* TrainingServiceImpl::PlanJob(Context* context,
                                                         const v1::PlanJobRequest* request,
                                                         v1::PlanJobResponse* response) {
  return RunOnPool(context, [this, request, response] { return DoPlanJob(*request, response); });
}

TrainingServiceImpl::Unary* TrainingServiceImpl::GetJob(Context* context,
                                                        const v1::GetJobRequest* request,
                                                        v1::Job* response) {
  const auto id = JobIdOf(request->name());
  if (!id.ok()) return Finish(context, id.status());
  const v1::JobView view =
      request->view() == v1::JOB_VIEW_UNSPECIFIED ? v1::JOB_VIEW_FULL : request->view();
  return Finish(context, Fill(rpc_.store.GetJob(*id), view, response));
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ListJobs(Context* context,
                                                          const v1::ListJobsRequest* request,
                                                          v1::ListJobsResponse* response) {
  return Finish(context, DoListJobs(IdentityOf(rpc_, *context), *request, response));
}

TrainingServiceImpl::Unary* TrainingServiceImpl::CancelJob(Context* context,
                                                           const v1::CancelJobRequest* request,
                                                           v1::Job* response) {
  const auto id = JobIdOf(request->name());
  if (!id.ok()) return Finish(context, id.status());
  const StopMode mode =
      request->mode() == v1::CancelJobRequest::MODE_NOW ? StopMode::kNow : StopMode::kGraceful;
  return Finish(context, Fill(rpc_.scheduler.CancelJob(*id, mode, request->reason()),
                              v1::JOB_VIEW_FULL, response));
}

TrainingServiceImpl::Unary* TrainingServiceImpl::SuspendJob(Context* context,
                                                            const v1::SuspendJobRequest* request,
                                                            v1::Job* response) {
  const auto id = JobIdOf(request->name());
  if (!id.ok()) return Finish(context, id.status());
  return Finish(context, Fill(rpc_.scheduler.SuspendJob(*id), v1::JOB_VIEW_FULL, response));
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ResumeJob(Context* context,
                                                           const v1::ResumeJobRequest* request,
                                                           v1::Job* response) {
  const auto id = JobIdOf(request->name());
  if (!id.ok()) return Finish(context, id.status());
  return Finish(context, Fill(rpc_.scheduler.ResumeJob(*id), v1::JOB_VIEW_FULL, response));
}

TrainingServiceImpl::Unary* TrainingServiceImpl::CheckpointJob(
    Context* context, const v1::CheckpointJobRequest* request, v1::Job* response) {
  const auto id = JobIdOf(request->name());
  if (!id.ok()) return Finish(context, id.status());
  const absl::Status asked = rpc_.scheduler.AskWorker(*id, CommandKind::kCheckpoint);
  if (!asked.ok()) return Finish(context, asked);
  return Finish(context, Fill(rpc_.store.GetJob(*id), v1::JOB_VIEW_FULL, response));
}

TrainingServiceImpl::Unary* TrainingServiceImpl::SampleJob(Context* context,
                                                           const v1::SampleJobRequest* request,
                                                           v1::Job* response) {
  const auto id = JobIdOf(request->name());
  if (!id.ok()) return Finish(context, id.status());
  const absl::Status can = CanSample(rpc_.store.GetJob(*id));
  if (!can.ok()) return Finish(context, can);
  const absl::Status asked = rpc_.scheduler.AskWorker(*id, CommandKind::kSample);
  if (!asked.ok()) return Finish(context, asked);
  return Finish(context, Fill(rpc_.store.GetJob(*id), v1::JOB_VIEW_FULL, response));
}

TrainingServiceImpl::Unary* TrainingServiceImpl::UpdateJob(Context* context,
                                                           const v1::UpdateJobRequest* request,
                                                           v1::Job* response) {
  return RunOnPool(context, [this, request, response] { return DoUpdateJob(*request, response); });
}

TrainingServiceImpl::Unary* TrainingServiceImpl::RetryJob(Context* context,
                                                          const v1::RetryJobRequest* request,
                                                          v1::Job* response) {
  const std::string tenant = IdentityOf(rpc_, *context).tenant;
  return RunOnPool(context, [this, tenant, request, response] {
    return DoRetryJob(tenant, *request, response);
  });
}

TrainingServiceImpl::Unary* TrainingServiceImpl::DeleteJob(Context* context,
                                                           const v1::DeleteJobRequest* request,
                                                           google::protobuf::Empty*) {
  return RunOnPool(context, [this, request] { return DoDeleteJob(*request); });
}

TrainingServiceImpl::Unary* TrainingServiceImpl::GetCheckpoint(
    Context* context, const v1::GetCheckpointRequest* request, v1::Checkpoint* response) {
  return RunOnPool(context,
                   [this, request, response] { return DoGetCheckpoint(*request, response); });
}

TrainingServiceImpl::Unary* TrainingServiceImpl::DeleteCheckpoint(
    Context* context, const v1::DeleteCheckpointRequest* request, google::protobuf::Empty*) {
  return RunOnPool(context, [this, request] { return DoDeleteCheckpoint(*request); });
}

grpc::ServerWriteReactor<v1::JobEvent>* TrainingServiceImpl::WatchJobs(
    Context* context, const v1::WatchJobsRequest* request) {
  return WatchStream::Start(rpc_, *context, *request);
}

grpc::ServerWriteReactor<v1::LogChunk>* TrainingServiceImpl::StreamJobLogs(
    Context* context, const v1::StreamJobLogsRequest* request) {
  return LogStream::Start(rpc_, IdentityOf(rpc_, *context), *request);
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ListJobEvents(
    Context* context, const v1::ListJobEventsRequest* request,
    v1::ListJobEventsResponse* response) {
  return Finish(context, DoListEvents(*request, response));
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ListAttempts(
    Context* context, const v1::ListAttemptsRequest* request, v1::ListAttemptsResponse* response) {
  return Finish(context, DoListAttempts(*request, response));
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ListCheckpoints(
    Context* context, const v1::ListCheckpointsRequest* request,
    v1::ListCheckpointsResponse* response) {
  return RunOnPool(context,
                   [this, request, response] { return DoListCheckpoints(*request, response); });
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ListMetricPoints(
    Context* context, const v1::ListMetricPointsRequest* request,
    v1::ListMetricPointsResponse* response) {
  return Finish(context, DoListPoints(*request, response));
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ListTemplates(
    Context* context, const v1::ListTemplatesRequest* request,
    v1::ListTemplatesResponse* response) {
  return RunOnPool(context,
                   [this, request, response] { return DoListTemplates(*request, response); });
}

TrainingServiceImpl::Unary* TrainingServiceImpl::GetTemplate(Context* context,
                                                             const v1::GetTemplateRequest* request,
                                                             v1::JobTemplate* response) {
  return RunOnPool(context, [this, request, response]() -> absl::Status {
    BLOCKSWAP_ASSIGN_OR_RETURN(*response, rpc_.templates.Get(request->name()));
    return absl::OkStatus();
  });
}

}  // namespace blockswap::server
