// SPDX-License-Identifier: Apache-2.0
#include "client/cli/follow.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/event_view.h"
#include "client/cli/job_text.h"
#include "client/cli/people_text.h"
#include "offload/base/status_macros.h"
#include "proto/text/utf8.h"

namespace blockswap::cli {
namespace {

// "0.1093 at step 1, 0.0312 at step 300"; empty when the job made no step.
std::string LossText(Session& session, const v1::Job& job) {
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return "";
  v1::ListMetricPointsRequest request;
  request.set_name(job.name());
  request.add_series("loss");
  const absl::StatusOr<v1::ListMetricPointsResponse> response =
      (*client)->ListMetricPoints(request);
  if (!response.ok() || response->series_size() == 0 || response->series(0).points_size() == 0)
    return "";
  const v1::MetricSeries& series = response->series(0);
  const v1::MetricPoint& first = series.points(0);
  const v1::MetricPoint& last = series.points(series.points_size() - 1);
  return absl::StrFormat("%.4g at step %d, %.4g at step %d", first.value(), first.step(),
                         last.value(), last.step());
}

ExitCode ShowResult(Session& session, const v1::Job& job) {
  if (session.structured()) {
    session.Print(job);
    return ExitCodeOf(job.state());
  }
  session.out() << JobId(job.name()) << " " << Coloured(job.state(), session.colour()) << "\n";
  if (job.has_failure()) session.out() << "failure:  " << FailureText(job.failure()) << "\n";
  const std::string loss = LossText(session, job);
  if (!loss.empty()) session.out() << "loss:     " << loss << "\n";
  const std::string directory = proto::ToPrintable(job.output_directory());
  if (!directory.empty()) session.out() << "outputs:  " << directory << "\n";
  if (job.state() == v1::JOB_STATE_SUCCEEDED && !directory.empty()) {
    const bool base_trains = job.spec().network().type() == "none";
    session.out() << (base_trains ? "model:    " : "adapter:  ")
                  << proto::ToPrintable(AdapterFile(job)) << "\n";
    if (!job.spec().sampling().prompts().empty())
      session.out() << "samples:  " << directory << "/samples\n";
  }
  return ExitCodeOf(job.state());
}

ExitCode Finish(Session& session, const std::string& name, const absl::StatusOr<v1::Job>& job) {
  if (job.ok()) return ShowResult(session, *job);
  if (session.interrupted()) return Detached(session, name);
  return session.Fail(job.status());
}

}  // namespace

absl::StatusOr<v1::Job> WatchJob(Session& session, const std::string& name, absl::Time deadline,
                                 const std::function<bool(v1::JobState)>& done,
                                 const std::function<void(const v1::JobEvent&)>& on_event) {
  BLOCKSWAP_ASSIGN_OR_RETURN(client::ServerClient * client, session.Client());
  v1::WatchJobsRequest request;
  request.set_job(name);
  request.set_include_snapshot(true);
  client::StreamOptions options;
  options.deadline = deadline;
  BLOCKSWAP_RETURN_IF_ERROR(client->WatchJobs(request, options, [&](const v1::JobEvent& event) {
    on_event(event);
    const bool tells_state = event.type() == v1::JobEvent::TYPE_SNAPSHOT ||
                             event.type() == v1::JobEvent::TYPE_CREATED ||
                             event.type() == v1::JobEvent::TYPE_STATE_CHANGED;
    return !(tells_state && done(event.state()));
  }));
  return client->GetJob(name);
}

ExitCode FollowJob(Session& session, const v1::Job& job) {
  EventView view(session.err(), session.surroundings().err_is_terminal,
                 session.surroundings().width);
  const absl::StatusOr<v1::Job> end =
      WatchJob(session, job.name(), absl::InfiniteFuture(), IsTerminal,
               [&view](const v1::JobEvent& event) { view.Show(event); });
  view.Close();
  return Finish(session, job.name(), end);
}

ExitCode AwaitJob(Session& session, const v1::Job& job) {
  return Finish(session, job.name(),
                WatchJob(session, job.name(), absl::InfiniteFuture(), IsTerminal,
                         [](const v1::JobEvent&) {}));
}

ExitCode Detached(const Session& session, const std::string& name) {
  const std::string id = JobId(name);
  session.err() << "detached; the job goes on\n"
                << "  blockswap watch " << id << "      to see it again\n"
                << "  blockswap logs -f " << id << "    for its log\n"
                << "  blockswap cancel " << id << "     to stop it\n";
  return kInterrupted;
}

}  // namespace blockswap::cli
