// SPDX-License-Identifier: Apache-2.0
// ListJobs: filter, order, pages.
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/jobs/job_filter.h"
#include "server/jobs/job_order.h"
#include "server/jobs/transitions.h"
#include "server/rpc/paging.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/service_guard.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {
namespace {

// What both pages must have in common for a token to be good.
std::string ScopeOf(const v1::ListJobsRequest& request, const JobListQuery& query) {
  // With the tenant: one's page token is worth nothing to another.
  return absl::StrCat("jobs\n", static_cast<int>(query.order.key),
                      query.order.descending ? "-" : "+", "\n", request.filter(), "\n",
                      query.filter.tenant);
}

absl::StatusOr<JobListQuery> QueryOf(const v1::ListJobsRequest& request) {
  std::vector<Violation> violations;
  JobListQuery query;
  auto filter = ParseJobFilter(request.filter());
  if (filter.ok()) {
    query.filter = *std::move(filter);
  } else {
    violations.push_back({"filter", std::string(filter.status().message())});
  }
  const auto order = ParseJobOrder(request.order_by());
  if (order.ok()) {
    query.order = *order;
  } else {
    violations.push_back({"order_by", std::string(order.status().message())});
  }
  const auto size = PageSize(request.page_size());
  if (!size.ok()) violations.push_back({"page_size", "must not be negative"});
  if (!violations.empty()) return SpecInvalid(violations);
  query.limit = *size;
  return query;
}

}  // namespace

absl::StatusOr<std::map<std::string, int64_t>> TrainingServiceImpl::PlacesOf(
    std::vector<JobRecord>& jobs) {
  std::map<std::string, int64_t> places;
  std::vector<JobRecord> unseen;
  for (JobRecord& job : jobs) {
    const std::optional<int64_t> shown = rpc_.scheduler.ShowPlace(&job);
    if (shown.has_value()) {
      places[job.id] = *shown;
    } else if (IsWaiting(job.state)) {
      unseen.push_back(job);
    }
  }
  // Created since the scheduler's last pass.
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto stored, rpc_.store.QueuePositions(unseen));
  places.insert(stored.begin(), stored.end());
  return places;
}

absl::Status TrainingServiceImpl::DoListJobs(const Identity& caller,
                                             const v1::ListJobsRequest& request,
                                             v1::ListJobsResponse* response) {
  BLOCKSWAP_ASSIGN_OR_RETURN(JobListQuery query, QueryOf(request));
  query.filter.tenant = TenantFilterOf(caller);
  const std::string scope = ScopeOf(request, query);
  if (!request.page_token().empty()) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const std::string key,
                               rpc_.tokens.ParseTextPageToken(request.page_token(), scope));
    BLOCKSWAP_ASSIGN_OR_RETURN(query.after, PageKeyFromText(key));
  }
  const auto size = static_cast<size_t>(query.limit);
  // One more than asked for tells whether there is a next page.
  ++query.limit;
  BLOCKSWAP_ASSIGN_OR_RETURN(std::vector<JobRecord> jobs, rpc_.store.ListJobs(query));
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto places, PlacesOf(jobs));
  const v1::JobView view =
      request.view() == v1::JOB_VIEW_UNSPECIFIED ? v1::JOB_VIEW_BASIC : request.view();
  size_t bytes = 0, added = 0;
  for (const JobRecord& job : jobs) {
    const auto place = places.find(job.id);
    v1::Job out = ToProto(job, view, place == places.end() ? 0 : place->second);
    bytes += out.ByteSizeLong();
    if (added == size || (added > 0 && bytes > kMaxPageBytes)) break;
    *response->add_jobs() = std::move(out);
    ++added;
  }
  if (added < jobs.size()) {
    const PageKey last = PageKeyOf(query.order, jobs[added - 1]);
    response->set_next_page_token(rpc_.tokens.TextPageToken(PageKeyToText(last), scope));
  }
  return absl::OkStatus();
}

}  // namespace blockswap::server
