// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/json_output.h"
#include "client/cli/people_text.h"
#include "client/cli/table.h"

namespace blockswap::cli {
namespace {

constexpr int kPageSize = 200;
constexpr absl::Duration kRecent = absl::Hours(24);

// Appends every page, until `wanted` has refused a whole one (jobs come newest first).
absl::Status Collect(client::ServerClient& client, const std::string& filter,
                     const std::function<bool(const v1::Job&)>& wanted,
                     v1::ListJobsResponse* jobs) {
  v1::ListJobsRequest request;
  request.set_filter(filter);
  request.set_page_size(kPageSize);
  request.set_view(v1::JOB_VIEW_FULL);
  while (true) {
    absl::StatusOr<v1::ListJobsResponse> page = client.ListJobs(request);
    if (!page.ok()) return page.status();
    bool any = false;
    for (v1::Job& job : *page->mutable_jobs()) {
      if (!wanted(job)) continue;
      any = true;
      *jobs->add_jobs() = std::move(job);
    }
    if (page->next_page_token().empty() || !any) return absl::OkStatus();
    request.set_page_token(page->next_page_token());
  }
}

std::string WithTerm(const std::vector<std::string>& terms, const std::string& term) {
  std::vector<std::string> all = terms;
  if (!term.empty()) all.push_back(term);
  return absl::StrJoin(all, " AND ");
}

std::string WhyText(const v1::Job& job) {
  return job.has_failure() ? FailureText(job.failure()) : StateReason(job);
}

void PrintTable(const Session& session, const v1::ListJobsResponse& jobs) {
  Table table({"JOB", "NAME", "STATE", "STEP", "LOSS", "DEVICE", "CREATED", "WHY"});
  const absl::Time now = absl::Now();
  for (const v1::Job& job : jobs.jobs()) {
    const v1::Progress& progress = job.progress();
    const bool stepped = progress.step() > 0;
    table.AddRow({JobId(job.name()), job.spec().name(), StateName(job.state()),
                  stepped ? absl::StrCat(progress.step(), "/", progress.total_steps()) : "-",
                  stepped ? absl::StrFormat("%.4g", progress.loss()) : "-",
                  job.device().empty() ? "-" : job.device(), Ago(job.create_time(), now),
                  WhyText(job)});
  }
  session.out() << table.Render(session.table_width());
}

}  // namespace

ExitCode RunList(Session& session, const Arguments& arguments) {
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  std::vector<std::string> terms;
  if (!arguments.state.empty()) {
    terms.push_back(absl::StrCat(
        "state=", absl::StripPrefix(absl::AsciiStrToUpper(arguments.state), "JOB_STATE_")));
  }
  for (const std::string& label : arguments.labels) terms.push_back(absl::StrCat("label.", label));

  v1::ListJobsResponse jobs;
  absl::Status status;
  if (arguments.all || !arguments.state.empty()) {
    status = Collect(
        **client, WithTerm(terms, ""), [](const v1::Job&) { return true; }, &jobs);
  } else {
    const absl::Time since = absl::Now() - kRecent;
    status = Collect(
        **client, WithTerm(terms, "active"), [](const v1::Job&) { return true; }, &jobs);
    if (status.ok()) {
      status = Collect(
          **client, WithTerm(terms, "terminal"),
          [since](const v1::Job& job) { return ToTime(job.end_time()) >= since; }, &jobs);
    }
  }
  if (!status.ok()) return session.Fail(status);

  switch (session.format()) {
    case Format::kJson:
      session.PrintJson(jobs);
      break;
    case Format::kJsonLines:
      for (const v1::Job& job : jobs.jobs()) session.out() << ToJson(job, /*pretty=*/false);
      break;
    case Format::kName:
      for (const v1::Job& job : jobs.jobs()) session.out() << JobId(job.name()) << "\n";
      break;
    case Format::kTable:
      PrintTable(session, jobs);
      break;
  }
  return kOk;
}

}  // namespace blockswap::cli
