// SPDX-License-Identifier: Apache-2.0
#include "client/cli/job_lookup.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/people_text.h"

namespace blockswap::cli {
namespace {

constexpr int kShownCandidates = 5;

bool IsIdLike(const std::string& id) {
  return !id.empty() &&
         id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

}  // namespace

absl::StatusOr<v1::Job> FindJob(client::ServerClient& client, const std::string& word) {
  const std::string id(absl::StripPrefix(word, "jobs/"));
  if (!IsIdLike(id)) {
    return absl::NotFoundError(
        absl::StrCat("no job is called '", word, "'; ids have lower-case letters, digits and '-'"));
  }
  absl::StatusOr<v1::Job> exact = client.GetJob(absl::StrCat("jobs/", id));
  if (exact.ok() || exact.status().code() != absl::StatusCode::kNotFound) return exact;

  v1::ListJobsRequest request;
  request.set_filter(absl::StrCat("name:", id));
  request.set_page_size(1000);
  const absl::StatusOr<v1::ListJobsResponse> response = client.ListJobs(request);
  if (!response.ok()) return response.status();
  std::vector<std::string> candidates;
  for (const v1::Job& job : response->jobs()) {
    // The filter also matches the names that people gave their jobs, which need not be unique.
    if (absl::StartsWith(JobId(job.name()), id)) candidates.push_back(JobId(job.name()));
  }
  if (candidates.empty()) return exact.status();
  if (candidates.size() == 1) return client.GetJob(absl::StrCat("jobs/", candidates[0]));
  const size_t total = candidates.size();
  candidates.resize(std::min<size_t>(total, kShownCandidates));
  return absl::InvalidArgumentError(absl::StrCat("'", id, "' is the beginning of ", total,
                                                 " job ids: ", absl::StrJoin(candidates, ", "),
                                                 total > kShownCandidates ? ", ..." : ""));
}

}  // namespace blockswap::cli
