// SPDX-License-Identifier: Apache-2.0
// The filter of ListJobs and WatchJobs: terms joined by AND.
#ifndef BLOCKSWAP_SERVER_JOBS_JOB_FILTER_H_
#define BLOCKSWAP_SERVER_JOBS_JOB_FILTER_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/jobs/job.h"

namespace blockswap::server {

// state=RUNNING, state!=QUEUED, label.KEY=VALUE, name:PREFIX, active, terminal.
struct JobFilter {
  std::optional<JobState> state;
  std::vector<JobState> not_states;
  std::map<std::string, std::string> labels;
  std::string name_prefix;
  bool active = false, terminal = false;

  bool Matches(const JobRecord& job) const;
  bool is_empty() const;
};

// InvalidArgument naming the term that is none and the terms there are.
absl::StatusOr<JobFilter> ParseJobFilter(absl::string_view text);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_JOBS_JOB_FILTER_H_
