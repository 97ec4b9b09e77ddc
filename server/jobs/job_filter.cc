// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/job_filter.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "server/jobs/transitions.h"

namespace blockswap::server {
namespace {

absl::Status BadTerm(absl::string_view term) {
  return absl::InvalidArgumentError(absl::StrCat(
      "filter term \"", term, "\" is none of state=STATE, state!=STATE, label.KEY=VALUE, ",
      "name:PREFIX, active, terminal, waiting, reason=REASON, retry_of=JOB, template=TEMPLATE, ",
      "priority>=N, create_time>=TIME, update_time>=TIME, end_time>=TIME, or <= (joined by AND; ",
      "times as 2026-12-01T08:00:00Z)"));
}

absl::StatusOr<JobState> StateOfTerm(absl::string_view term, absl::string_view name) {
  const auto state = ParseState(name);
  if (!state.has_value()) return BadTerm(term);
  return *state;
}

absl::StatusOr<int64_t> TimeOfTerm(absl::string_view term, absl::string_view text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return BadTerm(term);
  return absl::ToUnixMicros(time);
}

// What follows `key` in "key>=5"; the bound it sets.
std::optional<int64_t>* BoundOfTerm(absl::string_view* rest, absl::string_view key,
                                    Bounds* bounds) {
  if (!absl::ConsumePrefix(rest, key)) return nullptr;
  if (absl::ConsumePrefix(rest, ">=")) return &bounds->at_least;
  return absl::ConsumePrefix(rest, "<=") ? &bounds->at_most : nullptr;
}

// False: it is no such term.
absl::StatusOr<bool> AddBound(absl::string_view term, JobFilter* filter) {
  absl::string_view rest = term;
  if (std::optional<int64_t>* bound = BoundOfTerm(&rest, "priority", &filter->priority)) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(rest, &number)) return BadTerm(term);
    *bound = number;
    return true;
  }
  struct Time {
    const char* key;
    Bounds* bounds;
  };
  for (const Time& time :
       {Time{"create_time", &filter->create_micros}, Time{"update_time", &filter->update_micros},
        Time{"end_time", &filter->end_micros}}) {
    rest = term;
    std::optional<int64_t>* bound = BoundOfTerm(&rest, time.key, time.bounds);
    if (bound == nullptr) continue;
    const auto micros = TimeOfTerm(term, rest);
    if (!micros.ok()) return micros.status();
    *bound = *micros;
    return true;
  }
  return false;
}

absl::Status AddTerm(absl::string_view term, JobFilter* filter) {
  absl::string_view rest = term;
  if (term == "active") {
    filter->active = true;
  } else if (term == "terminal") {
    filter->terminal = true;
  } else if (term == "waiting") {
    filter->waiting = true;
  } else if (absl::ConsumePrefix(&rest, "state!=")) {
    auto state = StateOfTerm(term, rest);
    if (!state.ok()) return state.status();
    filter->not_states.push_back(*state);
  } else if (absl::ConsumePrefix(&rest, "state=")) {
    auto state = StateOfTerm(term, rest);
    if (!state.ok()) return state.status();
    filter->state = *state;
  } else if (absl::ConsumePrefix(&rest, "name:")) {
    filter->name_prefix = std::string(rest);
  } else if (absl::ConsumePrefix(&rest, "label.") && absl::StrContains(rest, '=')) {
    const std::vector<std::string> parts = absl::StrSplit(rest, absl::MaxSplits('=', 1));
    filter->labels[parts[0]] = parts[1];
  } else if (absl::ConsumePrefix(&rest, "reason=") && !rest.empty()) {
    filter->reason = std::string(rest);
  } else if (absl::ConsumePrefix(&rest, "retry_of=") && !rest.empty()) {
    filter->retry_of = std::string(absl::StripPrefix(rest, "jobs/"));
  } else if (absl::ConsumePrefix(&rest, "template=") && !rest.empty()) {
    filter->template_name = std::string(absl::StripPrefix(rest, "templates/"));
  } else {
    const auto added = AddBound(term, filter);
    if (!added.ok()) return added.status();
    if (!*added) return BadTerm(term);
  }
  return absl::OkStatus();
}

}  // namespace

bool JobFilter::is_empty() const {
  return !state.has_value() && not_states.empty() && labels.empty() && name_prefix.empty() &&
         !active && !terminal && !waiting && reason.empty() && retry_of.empty() &&
         template_name.empty() && tenant.empty() && priority.is_empty() && create_micros.is_empty() &&
         update_micros.is_empty() && end_micros.is_empty();
}

bool JobFilter::Matches(const JobRecord& job) const {
  if (!tenant.empty() && job.tenant != tenant) return false;
  if (state.has_value() && job.state != *state) return false;
  if (std::find(not_states.begin(), not_states.end(), job.state) != not_states.end()) return false;
  if (active && IsTerminal(job.state)) return false;
  if (terminal && !IsTerminal(job.state)) return false;
  if (waiting && !IsWaiting(job.state)) return false;
  if (!name_prefix.empty() && !absl::StartsWith(job.name, name_prefix) &&
      !absl::StartsWith(job.id, name_prefix)) {
    return false;
  }
  if (!reason.empty() && job.state_reason != reason) return false;
  if (!retry_of.empty() && job.retry_of != retry_of) return false;
  if (!template_name.empty() && job.template_name != template_name) return false;
  if (!priority.Contain(job.priority) || !create_micros.Contain(job.create_micros) ||
      !update_micros.Contain(job.update_micros)) {
    return false;
  }
  if (!end_micros.is_empty() && (job.end_micros == 0 || !end_micros.Contain(job.end_micros))) {
    return false;
  }
  for (const auto& [key, value] : labels) {
    const auto found = job.labels.find(key);
    if (found == job.labels.end() || found->second != value) return false;
  }
  return true;
}

absl::StatusOr<JobFilter> ParseJobFilter(absl::string_view text) {
  JobFilter filter;
  text = absl::StripAsciiWhitespace(text);
  if (text.empty()) return filter;
  const std::vector<std::string> terms = absl::StrSplit(text, " AND ");
  for (const std::string& term : terms) {
    const absl::Status added = AddTerm(absl::StripAsciiWhitespace(term), &filter);
    if (!added.ok()) return added;
  }
  return filter;
}

}  // namespace blockswap::server
