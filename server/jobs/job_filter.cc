// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/job_filter.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/jobs/transitions.h"

namespace blockswap::server {
namespace {

absl::Status BadTerm(absl::string_view term) {
  return absl::InvalidArgumentError(absl::StrCat(
      "filter term \"", term, "\" is none of state=STATE, state!=STATE, label.KEY=VALUE, ",
      "name:PREFIX, active, terminal (joined by AND)"));
}

absl::StatusOr<JobState> StateOfTerm(absl::string_view term, absl::string_view name) {
  const auto state = ParseState(name);
  if (!state.has_value()) return BadTerm(term);
  return *state;
}

absl::Status AddTerm(absl::string_view term, JobFilter* filter) {
  absl::string_view rest = term;
  if (term == "active") {
    filter->active = true;
  } else if (term == "terminal") {
    filter->terminal = true;
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
  } else {
    return BadTerm(term);
  }
  return absl::OkStatus();
}

}  // namespace

bool JobFilter::is_empty() const {
  return !state.has_value() && not_states.empty() && labels.empty() && name_prefix.empty() &&
         !active && !terminal;
}

bool JobFilter::Matches(const JobRecord& job) const {
  if (state.has_value() && job.state != *state) return false;
  if (std::find(not_states.begin(), not_states.end(), job.state) != not_states.end()) return false;
  if (active && IsTerminal(job.state)) return false;
  if (terminal && !IsTerminal(job.state)) return false;
  if (!name_prefix.empty() && !absl::StartsWith(job.name, name_prefix) &&
      !absl::StartsWith(job.id, name_prefix)) {
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
