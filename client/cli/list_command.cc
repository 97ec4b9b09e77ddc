// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cli/call.h"
#include "client/cli/commands.h"
#include "client/cli/job_columns.h"
#include "client/cli/listing.h"
#include "client/cli/pages.h"
#include "client/cli/people_text.h"
#include "offload/base/status_macros.h"

namespace blockswap::cli {
namespace {

constexpr int kPageSize = 200;
constexpr absl::Duration kRecent = absl::Hours(24);

std::string WithTerm(const std::vector<std::string>& terms, const std::string& term) {
  std::vector<std::string> all = terms;
  if (!term.empty()) all.push_back(term);
  return absl::StrJoin(all, " AND ");
}

absl::StatusOr<v1::ListJobsResponse> ReadJobs(
    client::ServerClient& client, const std::string& filter,
    const std::function<bool(const v1::Job&)>& wanted = nullptr) {
  v1::ListJobsRequest request;
  request.set_filter(filter);
  request.set_page_size(kPageSize);
  request.set_view(v1::JOB_VIEW_FULL);
  return ReadPages(client, &client::ServerClient::ListJobs, &v1::ListJobsResponse::mutable_jobs,
                   request, wanted);
}

// The jobs of the whole history when asked for, else those that are not over or ended lately.
absl::StatusOr<v1::ListJobsResponse> ReadWanted(client::ServerClient& client,
                                                const Arguments& arguments) {
  std::vector<std::string> terms;
  if (!arguments.state.empty()) {
    terms.push_back(absl::StrCat(
        "state=", absl::StripPrefix(absl::AsciiStrToUpper(arguments.state), "JOB_STATE_")));
  }
  for (const std::string& label : arguments.labels) terms.push_back(absl::StrCat("label.", label));
  if (arguments.all || !arguments.state.empty()) return ReadJobs(client, WithTerm(terms, ""));

  BLOCKSWAP_ASSIGN_OR_RETURN(v1::ListJobsResponse jobs,
                             ReadJobs(client, WithTerm(terms, "active")));
  const absl::Time since = absl::Now() - kRecent;
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const v1::ListJobsResponse ended,
      ReadJobs(client, WithTerm(terms, "terminal"),
               [since](const v1::Job& job) { return ToTime(job.end_time()) >= since; }));
  jobs.MergeFrom(ended);
  return jobs;
}

}  // namespace

ExitCode RunList(Session& session, const Arguments& arguments) {
  return CallServer(
      session, [&arguments](client::ServerClient& client) { return ReadWanted(client, arguments); },
      [&](const v1::ListJobsResponse& jobs) {
        return PrintListing<v1::Job>(
            session, arguments, jobs, jobs.jobs(),
            [](const v1::Job& job) { return JobId(job.name()); }, JobColumns(absl::Now()));
      });
}

}  // namespace blockswap::cli
