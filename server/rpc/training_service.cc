// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/training_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/rpc/log_stream.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/watch_stream.h"

namespace blockswap::server {
namespace {

constexpr int kDefaultPage = 50;
constexpr int kMaxPage = 1000;
constexpr int64_t kMaxPoints = 10000;

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* NotYet(grpc::CallbackServerContext* context, const char* verb) {
  return Finish(context, WithReason(absl::UnimplementedError(absl::StrCat(
                                        verb, " is not available in this version of blockswapd")),
                                    "UNIMPLEMENTED"));
}

absl::StatusOr<int> PageSize(int requested) {
  if (requested < 0) return absl::InvalidArgumentError("page_size: must not be negative");
  return requested == 0 ? kDefaultPage : std::min(requested, kMaxPage);
}

// Keys of a paged list that is short enough to be read whole: index of the first entry that is not
// on an earlier page.
template <typename Record, typename Add>
absl::StatusOr<std::string> Page(const TokenMaker& tokens, const std::vector<Record>& records,
                                 int requested_size, const std::string& token,
                                 const std::string& scope, Add add) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const int size, PageSize(requested_size));
  BLOCKSWAP_ASSIGN_OR_RETURN(const int64_t first, tokens.ParsePageToken(token, scope));
  const auto count = static_cast<int64_t>(records.size());
  const int64_t end = std::min<int64_t>(count, first + size);
  for (int64_t i = first; i < end; ++i) add(records[static_cast<size_t>(i)]);
  return end < count ? tokens.PageToken(end, scope) : std::string();
}

double SeriesValue(const MetricPoint& point, absl::string_view series) {
  if (series == "loss") return point.loss;
  if (series == "learning_rate") return point.learning_rate;
  if (series == "grad_norm") return point.grad_norm;
  if (series == "seconds") return point.seconds;
  if (series == "h2d_bytes") return static_cast<double>(point.h2d_bytes);
  if (series == "stall_seconds") return point.stall_seconds;
  return static_cast<double>(point.device_bytes_peak);
}

const std::vector<std::string>& AllSeries() {
  static const auto* series =
      new std::vector<std::string>{"loss",      "learning_rate", "grad_norm",        "seconds",
                                   "h2d_bytes", "stall_seconds", "device_bytes_peak"};
  return *series;
}

absl::Status ListPoints(JobStore& store, const v1::ListMetricPointsRequest& request,
                        v1::ListMetricPointsResponse* response) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string id, JobIdOf(request.name()));
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, store.GetJob(id));
  std::vector<std::string> wanted(request.series().begin(), request.series().end());
  if (wanted.empty()) wanted = AllSeries();
  for (const std::string& series : wanted) {
    if (std::find(AllSeries().begin(), AllSeries().end(), series) == AllSeries().end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("series: \"", series,
                       "\" is none of loss, learning_rate, grad_norm, seconds, h2d_bytes, ",
                       "stall_seconds, device_bytes_peak"));
    }
  }
  if (request.max_points() < 0)
    return absl::InvalidArgumentError("max_points: must not be negative");
  const int64_t limit =
      request.max_points() == 0 ? kMaxPoints : std::min<int64_t>(request.max_points(), kMaxPoints);
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto points,
                             store.ListMetricPoints(job.uid, request.from_step(), limit));
  for (const std::string& name : wanted) {
    v1::MetricSeries* series = response->add_series();
    series->set_name(name);
    for (const MetricPoint& point : points) {
      v1::MetricPoint* out = series->add_points();
      out->set_step(point.step);
      out->set_value(SeriesValue(point, name));
    }
  }
  return absl::OkStatus();
}

absl::Status DoListJobs(RpcContext& rpc, const v1::ListJobsRequest& request,
                        v1::ListJobsResponse* response) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const int size, PageSize(request.page_size()));
  if (!request.order_by().empty() && request.order_by() != "create_time desc") {
    return absl::InvalidArgumentError(
        "order_by: only \"create_time desc\" (newest first) is offered");
  }
  auto filter = ParseJobFilter(request.filter());
  if (!filter.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("filter: ", filter.status().message()));
  }
  const std::string scope = absl::StrCat("jobs\n", request.filter());
  BLOCKSWAP_ASSIGN_OR_RETURN(const int64_t before,
                             rpc.tokens.ParsePageToken(request.page_token(), scope));
  // One more than asked for tells whether there is a next page.
  BLOCKSWAP_ASSIGN_OR_RETURN(auto jobs, rpc.store.ListJobs(*filter, before, size + 1));
  if (static_cast<int>(jobs.size()) > size) {
    jobs.pop_back();
    response->set_next_page_token(rpc.tokens.PageToken(jobs.back().created_sequence, scope));
  }
  for (const JobRecord& job : jobs) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const int64_t position, rpc.store.QueuePosition(job));
    *response->add_jobs() = ToProto(job, request.view(), position);
  }
  return absl::OkStatus();
}

}  // namespace

TrainingServiceImpl::TrainingServiceImpl(RpcContext& context)
    : rpc_(context), pool_(/*threads=*/2, /*max_waiting=*/256) {}

TrainingServiceImpl::Unary* TrainingServiceImpl::RunOnPool(Context* context,
                                                           std::function<absl::Status()> work) {
  Unary* reactor = context->DefaultReactor();
  const bool taken =
      pool_.Submit([reactor, work = std::move(work)] { reactor->Finish(ToGrpcStatus(work())); });
  if (!taken) {
    reactor->Finish(ToGrpcStatus(
        WithReason(absl::ResourceExhaustedError("too many requests wait to be planned; try again"),
                   "QUEUE_FULL")));
  }
  return reactor;
}

absl::Status TrainingServiceImpl::Fill(const absl::StatusOr<JobRecord>& job, v1::JobView view,
                                       v1::Job* response) {
  BLOCKSWAP_RETURN_IF_ERROR(job.status());
  BLOCKSWAP_ASSIGN_OR_RETURN(const int64_t position, rpc_.store.QueuePosition(*job));
  *response = ToProto(*job, view, position);
  return absl::OkStatus();
}

TrainingServiceImpl::Unary* TrainingServiceImpl::CreateJob(Context* context,
                                                           const v1::CreateJobRequest* request,
                                                           v1::Job* response) {
  return RunOnPool(context, [this, request, response] { return DoCreateJob(*request, response); });
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
  return Finish(context, Fill(rpc_.store.GetJob(*id), v1::JOB_VIEW_FULL, response));
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ListJobs(Context* context,
                                                          const v1::ListJobsRequest* request,
                                                          v1::ListJobsResponse* response) {
  return Finish(context, DoListJobs(rpc_, *request, response));
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
                                                          const v1::RetryJobRequest*, v1::Job*) {
  return NotYet(context, "RetryJob");
}
TrainingServiceImpl::Unary* TrainingServiceImpl::DeleteJob(Context* context,
                                                           const v1::DeleteJobRequest*,
                                                           google::protobuf::Empty*) {
  return NotYet(context, "DeleteJob");
}
TrainingServiceImpl::Unary* TrainingServiceImpl::GetCheckpoint(Context* context,
                                                               const v1::GetCheckpointRequest*,
                                                               v1::Checkpoint*) {
  return NotYet(context, "GetCheckpoint");
}
TrainingServiceImpl::Unary* TrainingServiceImpl::DeleteCheckpoint(
    Context* context, const v1::DeleteCheckpointRequest*, google::protobuf::Empty*) {
  return NotYet(context, "DeleteCheckpoint");
}

grpc::ServerWriteReactor<v1::JobEvent>* TrainingServiceImpl::WatchJobs(
    Context* context, const v1::WatchJobsRequest* request) {
  return WatchStream::Start(rpc_, *context, *request);
}

grpc::ServerWriteReactor<v1::LogChunk>* TrainingServiceImpl::StreamJobLogs(
    Context*, const v1::StreamJobLogsRequest* request) {
  return LogStream::Start(rpc_, *request);
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ListJobEvents(
    Context* context, const v1::ListJobEventsRequest* request,
    v1::ListJobEventsResponse* response) {
  const auto work = [&]() -> absl::Status {
    BLOCKSWAP_ASSIGN_OR_RETURN(const std::string id, JobIdOf(request->parent()));
    BLOCKSWAP_RETURN_IF_ERROR(rpc_.store.GetJob(id).status());
    BLOCKSWAP_ASSIGN_OR_RETURN(const int size, PageSize(request->page_size()));
    const std::string scope = absl::StrCat("events\n", id);
    BLOCKSWAP_ASSIGN_OR_RETURN(const int64_t after,
                               rpc_.tokens.ParsePageToken(request->page_token(), scope));
    BLOCKSWAP_ASSIGN_OR_RETURN(auto events, rpc_.store.EventsAfter(after, id, size + 1));
    if (static_cast<int>(events.size()) > size) {
      events.pop_back();
      response->set_next_page_token(rpc_.tokens.PageToken(events.back().sequence, scope));
    }
    for (const EventRecord& event : events) *response->add_events() = ToProto(event);
    return absl::OkStatus();
  };
  return Finish(context, work());
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ListAttempts(
    Context* context, const v1::ListAttemptsRequest* request, v1::ListAttemptsResponse* response) {
  const auto work = [&]() -> absl::Status {
    BLOCKSWAP_ASSIGN_OR_RETURN(const std::string id, JobIdOf(request->parent()));
    BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, rpc_.store.GetJob(id));
    BLOCKSWAP_ASSIGN_OR_RETURN(const auto attempts, rpc_.store.ListAttempts(job.uid));
    const auto add = [&](const AttemptRecord& attempt) {
      *response->add_attempts() = ToProto(id, attempt);
    };
    BLOCKSWAP_ASSIGN_OR_RETURN(const std::string next,
                               Page(rpc_.tokens, attempts, request->page_size(),
                                    request->page_token(), absl::StrCat("attempts\n", id), add));
    response->set_next_page_token(next);
    return absl::OkStatus();
  };
  return Finish(context, work());
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ListCheckpoints(
    Context* context, const v1::ListCheckpointsRequest* request,
    v1::ListCheckpointsResponse* response) {
  const auto work = [&]() -> absl::Status {
    BLOCKSWAP_ASSIGN_OR_RETURN(const std::string id, JobIdOf(request->parent()));
    BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, rpc_.store.GetJob(id));
    BLOCKSWAP_ASSIGN_OR_RETURN(const auto checkpoints, rpc_.store.ListCheckpoints(job.uid));
    const auto add = [&](const CheckpointRecord& checkpoint) {
      *response->add_checkpoints() = ToProto(id, checkpoint);
    };
    BLOCKSWAP_ASSIGN_OR_RETURN(const std::string next,
                               Page(rpc_.tokens, checkpoints, request->page_size(),
                                    request->page_token(), absl::StrCat("checkpoints\n", id), add));
    response->set_next_page_token(next);
    return absl::OkStatus();
  };
  return Finish(context, work());
}

TrainingServiceImpl::Unary* TrainingServiceImpl::ListMetricPoints(
    Context* context, const v1::ListMetricPointsRequest* request,
    v1::ListMetricPointsResponse* response) {
  return Finish(context, ListPoints(rpc_.store, *request, response));
}

}  // namespace blockswap::server
