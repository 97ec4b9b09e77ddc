// SPDX-License-Identifier: Apache-2.0
// The filter of ListJobs and WatchJobs: terms joined by AND.
#ifndef BLOCKSWAP_SERVER_JOBS_JOB_FILTER_H_
#define BLOCKSWAP_SERVER_JOBS_JOB_FILTER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/jobs/job.h"

namespace blockswap::server {

// Both ends belong to it.
struct Bounds {
  std::optional<int64_t> at_least, at_most;
  bool is_empty() const { return !at_least.has_value() && !at_most.has_value(); }
  bool Contain(int64_t value) const {
    return (!at_least.has_value() || value >= *at_least) &&
           (!at_most.has_value() || value <= *at_most);
  }
};

// state=RUNNING, state!=QUEUED, label.KEY=VALUE, name:PREFIX, active, terminal, waiting,
// reason=HELD, retry_of=JOB, template=TEMPLATE, priority>=N, create_time>=TIME, and <= likewise;
// update_time, end_time as create_time.
struct JobFilter {
  std::optional<JobState> state;
  std::vector<JobState> not_states;
  std::map<std::string, std::string> labels;
  std::string name_prefix;
  bool active = false, terminal = false, waiting = false;
  std::string reason;
  std::string retry_of;  // a job's id
  std::string template_name;
  std::string tenant;  // set by the server, not by the text: whose jobs the caller sees
  Bounds priority;
  Bounds create_micros, update_micros, end_micros;  // no end yet: in no bounds

  bool Matches(const JobRecord& job) const;
  bool is_empty() const;
};

// InvalidArgument naming the term that is none and the terms there are.
absl::StatusOr<JobFilter> ParseJobFilter(absl::string_view text);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_JOBS_JOB_FILTER_H_
