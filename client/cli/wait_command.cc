// SPDX-License-Identifier: Apache-2.0
// wait and watch: stay with a job while it runs.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/commands.h"
#include "client/cli/event_view.h"
#include "client/cli/follow.h"
#include "client/cli/interrupt.h"
#include "client/cli/job_lookup.h"
#include "client/cli/json_output.h"
#include "client/cli/people_text.h"

namespace blockswap::cli {
namespace {

std::unique_ptr<InterruptGuard> Guard(Session& session) {
  if (!session.surroundings().handles_interrupts) return nullptr;
  return std::make_unique<InterruptGuard>([&session] { session.Interrupt(); });
}

bool HasRun(v1::JobState state) {
  return state == v1::JOB_STATE_RUNNING || state == v1::JOB_STATE_SUCCEEDED;
}

void PrintEvent(const Session& session, const v1::JobEvent& event) {
  if (event.type() == v1::JobEvent::TYPE_SNAPSHOT_END && !session.structured()) return;
  if (session.structured()) {
    session.PrintItem(event);
  } else {
    session.out() << EventLine(event) << "\n";
  }
  session.out().flush();
}

ExitCode WaitForOne(Session& session, const Arguments& arguments, const v1::Job& job,
                    absl::Time deadline, v1::Job* end) {
  const bool for_running = arguments.wait_for == "running";
  const absl::StatusOr<v1::Job> reached = WatchJob(
      session, job.name(), deadline,
      [for_running](v1::JobState state) {
        return IsTerminal(state) || (for_running && HasRun(state));
      },
      [](const v1::JobEvent&) {});
  if (!reached.ok()) {
    if (session.interrupted()) return Detached(session, job.name());
    if (reached.status().code() != absl::StatusCode::kDeadlineExceeded)
      return session.Fail(reached.status());
    session.err() << JobId(job.name()) << ": not " << arguments.wait_for
                  << " within the time given\n";
    return kStillRunning;
  }
  *end = *reached;
  if (!session.structured())
    session.out() << JobId(end->name()) << " " << Coloured(end->state(), session.colour()) << "\n";
  if (for_running && HasRun(end->state())) return kOk;
  return ExitCodeOf(end->state());
}

}  // namespace

ExitCode RunWait(Session& session, const Arguments& arguments) {
  const std::unique_ptr<InterruptGuard> guard = Guard(session);
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  std::vector<v1::Job> jobs;
  for (const std::string& word : arguments.jobs) {
    absl::StatusOr<v1::Job> job = FindJob(**client, word);
    if (!job.ok()) return session.Fail(job.status());
    jobs.push_back(*std::move(job));
  }
  const absl::Time deadline = absl::Now() + arguments.timeout;
  ExitCode worst = kOk;
  v1::ListJobsResponse ended;
  for (const v1::Job& job : jobs) {
    v1::Job end = job;
    const ExitCode code = WaitForOne(session, arguments, job, deadline, &end);
    *ended.add_jobs() = end;
    if (code == kInterrupted) return code;
    // One failed job makes the whole wait fail, whatever the others do; the first kind of trouble
    // is told.
    if (worst == kOk) worst = code;
  }
  if (session.structured()) session.Print(ended);
  return worst;
}

ExitCode RunWatch(Session& session, const Arguments& arguments) {
  const std::unique_ptr<InterruptGuard> guard = Guard(session);
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  if (arguments.jobs.empty()) {
    v1::WatchJobsRequest request;
    request.set_include_snapshot(true);
    const absl::Status status = (*client)->WatchJobs(request, client::StreamOptions(),
                                                     [&session](const v1::JobEvent& event) {
                                                       PrintEvent(session, event);
                                                       return session.out().good();
                                                     });
    if (session.interrupted()) return kInterrupted;
    return status.ok() ? kOk : session.Fail(status);
  }
  const absl::StatusOr<v1::Job> job = FindJob(**client, arguments.jobs[0]);
  if (!job.ok()) return session.Fail(job.status());
  if (!session.structured() && session.surroundings().out_is_terminal)
    return FollowJob(session, *job);
  const absl::StatusOr<v1::Job> end =
      WatchJob(session, job->name(), absl::InfiniteFuture(), IsTerminal,
               [&session](const v1::JobEvent& event) { PrintEvent(session, event); });
  if (session.interrupted()) return Detached(session, job->name());
  return end.ok() ? ExitCodeOf(end->state()) : session.Fail(end.status());
}

}  // namespace blockswap::cli
