// SPDX-License-Identifier: Apache-2.0
// get and describe: one job, short or whole.
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/call.h"
#include "client/cli/commands.h"
#include "client/cli/event_view.h"
#include "client/cli/job_columns.h"
#include "client/cli/job_text.h"
#include "client/cli/listing.h"
#include "client/cli/people_text.h"

namespace blockswap::cli {
namespace {

// Events are the end of the description and no part of the job: a server that cannot list them is
// no failure.
void PrintEvents(const Session& session, client::ServerClient& client, const v1::Job& job) {
  v1::ListJobEventsRequest request;
  request.set_parent(job.name());
  request.set_page_size(1000);
  const absl::StatusOr<v1::ListJobEventsResponse> response = client.ListJobEvents(request);
  if (!response.ok() || response->events().empty()) return;
  session.out() << "Events:\n";
  for (const v1::JobEvent& event : response->events())
    session.out() << "  " << EventLine(event) << "\n";
}

}  // namespace

ExitCode RunGet(Session& session, const Arguments& arguments) {
  return WithJob(session, arguments, [&](client::ServerClient&, const v1::Job& job) {
    return PrintOne<v1::Job>(
        session, arguments, job, [](const v1::Job& each) { return JobId(each.name()); },
        JobColumns(absl::Now()));
  });
}

ExitCode RunDescribe(Session& session, const Arguments& arguments) {
  return WithJob(session, arguments, [&](client::ServerClient& client, const v1::Job& job) {
    session.Show(job, DescribeJob(job, absl::Now()));
    if (!session.structured()) PrintEvents(session, client, job);
    return kOk;
  });
}

}  // namespace blockswap::cli
