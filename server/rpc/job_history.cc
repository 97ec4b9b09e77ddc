// SPDX-License-Identifier: Apache-2.0
// Lists of what belongs to a job: events, attempts, checkpoints, figures; and of templates.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/status_macros.h"
#include "server/rpc/job_outputs.h"
#include "server/rpc/paging.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {
namespace {

struct Series {
  const char* name;
  double (*value)(const MetricPoint& point);
};

constexpr Series kSeries[] = {
    {"loss", [](const MetricPoint& point) { return point.loss; }},
    {"learning_rate", [](const MetricPoint& point) { return point.learning_rate; }},
    {"grad_norm", [](const MetricPoint& point) { return point.grad_norm; }},
    {"seconds", [](const MetricPoint& point) { return point.seconds; }},
    {"h2d_bytes", [](const MetricPoint& point) { return static_cast<double>(point.h2d_bytes); }},
    {"stall_seconds", [](const MetricPoint& point) { return point.stall_seconds; }},
    {"device_bytes_peak",
     [](const MetricPoint& point) { return static_cast<double>(point.device_bytes_peak); }},
};

absl::StatusOr<std::vector<Series>> SeriesOf(const v1::ListMetricPointsRequest& request) {
  std::vector<Violation> violations;
  std::vector<Series> wanted;
  for (const std::string& name : request.series()) {
    const auto* found = std::find_if(std::begin(kSeries), std::end(kSeries),
                                     [&](const Series& series) { return series.name == name; });
    if (found != std::end(kSeries)) {
      wanted.push_back(*found);
      continue;
    }
    violations.push_back(
        {"series",
         absl::StrCat("\"", name, "\" is none of ",
                      absl::StrJoin(kSeries, ", ", [](std::string* out, const Series& series) {
                        absl::StrAppend(out, series.name);
                      }))});
  }
  if (request.max_points() < 0) violations.push_back({"max_points", "must not be negative"});
  if (request.from_step() < 0) violations.push_back({"from_step", "must not be negative"});
  if (request.to_step() < 0) violations.push_back({"to_step", "must not be negative"});
  if (!violations.empty()) return SpecInvalid(violations);
  if (wanted.empty()) wanted.assign(std::begin(kSeries), std::end(kSeries));
  return wanted;
}

}  // namespace

absl::Status TrainingServiceImpl::DoListPoints(const v1::ListMetricPointsRequest& request,
                                               v1::ListMetricPointsResponse* response) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string id, JobIdOf(request.name()));
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::vector<Series> wanted, SeriesOf(request));
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, rpc_.store.GetJob(id));
  const int64_t limit = request.max_points() == 0
                            ? kMaxMetricPoints
                            : std::min<int64_t>(request.max_points(), kMaxMetricPoints);
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const ThinnedPoints thinned,
      rpc_.store.ListMetricPoints(job.uid, {request.from_step(), request.to_step(), limit}));
  response->set_total_points(thinned.total);
  for (const Series& series : wanted) {
    v1::MetricSeries* out = response->add_series();
    out->set_name(series.name);
    for (const MetricPoint& point : thinned.points) {
      v1::MetricPoint* added = out->add_points();
      added->set_step(point.step);
      added->set_value(series.value(point));
    }
  }
  return absl::OkStatus();
}

absl::Status TrainingServiceImpl::DoListEvents(const v1::ListJobEventsRequest& request,
                                               v1::ListJobEventsResponse* response) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string id, JobIdOf(request.parent()));
  BLOCKSWAP_RETURN_IF_ERROR(rpc_.store.GetJob(id).status());
  BLOCKSWAP_ASSIGN_OR_RETURN(const int size, PageSize(request.page_size()));
  const std::string scope = absl::StrCat("events\n", id);
  BLOCKSWAP_ASSIGN_OR_RETURN(const int64_t after,
                             rpc_.tokens.ParsePageToken(request.page_token(), scope));
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto events, rpc_.store.EventsAfter(after, id, size + 1));
  size_t bytes = 0, added = 0;
  for (const EventRecord& event : events) {
    v1::JobEvent out = ToProto(event);
    bytes += out.ByteSizeLong();
    if (static_cast<int>(added) == size || (added > 0 && bytes > kMaxPageBytes)) break;
    *response->add_events() = std::move(out);
    ++added;
  }
  if (added < events.size()) {
    response->set_next_page_token(rpc_.tokens.PageToken(events[added - 1].sequence, scope));
  }
  return absl::OkStatus();
}

absl::Status TrainingServiceImpl::DoListAttempts(const v1::ListAttemptsRequest& request,
                                                 v1::ListAttemptsResponse* response) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string id, JobIdOf(request.parent()));
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, rpc_.store.GetJob(id));
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto attempts, rpc_.store.ListAttempts(job.uid));
  const auto add = [&](const AttemptRecord& attempt) {
    *response->add_attempts() = ToProto(id, attempt);
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(*response->mutable_next_page_token(),
                             AddPage(rpc_.tokens, attempts, request.page_size(),
                                     request.page_token(), absl::StrCat("attempts\n", id), add));
  return absl::OkStatus();
}

absl::Status TrainingServiceImpl::DoListCheckpoints(const v1::ListCheckpointsRequest& request,
                                                    v1::ListCheckpointsResponse* response) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string id, JobIdOf(request.parent()));
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, rpc_.store.GetJob(id));
  BLOCKSWAP_ASSIGN_OR_RETURN(auto stored, rpc_.store.ListCheckpoints(job.uid));
  const auto add = [&](const CheckpointRecord& checkpoint) {
    *response->add_checkpoints() = ToProto(id, checkpoint);
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(*response->mutable_next_page_token(),
                             AddPage(rpc_.tokens, OnDisk(std::move(stored)), request.page_size(),
                                     request.page_token(), absl::StrCat("checkpoints\n", id), add));
  return absl::OkStatus();
}

absl::Status TrainingServiceImpl::DoListTemplates(const v1::ListTemplatesRequest& request,
                                                  v1::ListTemplatesResponse* response) {
  const auto add = [&](const v1::JobTemplate& found) { *response->add_templates() = found; };
  BLOCKSWAP_ASSIGN_OR_RETURN(*response->mutable_next_page_token(),
                             AddPage(rpc_.tokens, rpc_.templates.List(), request.page_size(),
                                     request.page_token(), "templates", add));
  return absl::OkStatus();
}

}  // namespace blockswap::server
