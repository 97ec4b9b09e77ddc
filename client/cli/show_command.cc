// SPDX-License-Identifier: Apache-2.0
// get and describe: one job, short or whole.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/event_view.h"
#include "client/cli/job_lookup.h"
#include "client/cli/job_text.h"
#include "client/cli/people_text.h"
#include "client/cli/table.h"

namespace blockswap::cli {
namespace {

// kOk with the job in `*job`, or the exit code after the error was printed.
ExitCode Load(Session& session, const Arguments& arguments, v1::Job* job) {
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  absl::StatusOr<v1::Job> found = FindJob(**client, arguments.jobs[0]);
  if (!found.ok()) return session.Fail(found.status());
  *job = *std::move(found);
  return kOk;
}

// Events are the end of the description and no part of the job: a server that cannot list them is
// no failure.
void PrintEvents(Session& session, const v1::Job& job) {
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return;
  v1::ListJobEventsRequest request;
  request.set_parent(job.name());
  request.set_page_size(1000);
  const absl::StatusOr<v1::ListJobEventsResponse> response = (*client)->ListJobEvents(request);
  if (!response.ok() || response->events().empty()) return;
  session.out() << "Events:\n";
  for (const v1::JobEvent& event : response->events())
    session.out() << "  " << EventLine(event) << "\n";
}

}  // namespace

ExitCode RunGet(Session& session, const Arguments& arguments) {
  v1::Job job;
  const ExitCode code = Load(session, arguments, &job);
  if (code != kOk) return code;
  if (session.json()) {
    session.PrintJson(job);
    return kOk;
  }
  if (session.format() == Format::kName) {
    session.out() << JobId(job.name()) << "\n";
    return kOk;
  }
  Table table({"JOB", "NAME", "STATE", "STEP", "LOSS", "DEVICE", "CREATED"});
  const bool stepped = job.progress().step() > 0;
  table.AddRow(
      {JobId(job.name()), job.spec().name(), StateName(job.state()),
       stepped ? absl::StrCat(job.progress().step(), "/", job.progress().total_steps()) : "-",
       stepped ? absl::StrFormat("%.4g", job.progress().loss()) : "-",
       job.device().empty() ? "-" : job.device(), Ago(job.create_time(), absl::Now())});
  session.out() << table.Render(session.table_width());
  return kOk;
}

ExitCode RunDescribe(Session& session, const Arguments& arguments) {
  v1::Job job;
  const ExitCode code = Load(session, arguments, &job);
  if (code != kOk) return code;
  if (session.json()) {
    session.PrintJson(job);
    return kOk;
  }
  session.out() << DescribeJob(job, absl::Now());
  PrintEvents(session, job);
  return kOk;
}

}  // namespace blockswap::cli
