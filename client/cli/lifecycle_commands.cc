// SPDX-License-Identifier: Apache-2.0
// suspend, resume, checkpoint, sample, cancel, retry and delete: one call for one job.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/assignments.h"
#include "client/cli/call.h"
#include "client/cli/commands.h"
#include "client/cli/confirm.h"
#include "client/cli/people_text.h"
#include "client/cpp/request_id.h"

namespace blockswap::cli {
namespace {

ExitCode ShowState(const Session& session, const v1::Job& job) {
  const std::string state = session.format() == Format::kName
                                ? ""
                                : absl::StrCat(" ", Coloured(job.state(), session.colour()));
  return session.Show(job, absl::StrCat(JobId(job.name()), state, "\n"));
}

// Makes a request that names the job and says no more, and prints the job as it is then.
template <typename Request>
ExitCode ChangeState(Session& session, const Arguments& arguments,
                     absl::StatusOr<v1::Job> (client::ServerClient::*change)(const Request&)) {
  return CallForJob(
      session, arguments,
      [change](client::ServerClient& client, const v1::Job& job) {
        Request request;
        request.set_name(job.name());
        return (client.*change)(request);
      },
      [&session](const v1::Job& after) { return ShowState(session, after); });
}

ExitCode Retry(const Session& session, const Arguments& arguments, client::ServerClient& client,
               const v1::Job& job) {
  v1::RetryJobRequest request;
  request.set_name(job.name());
  request.set_new_job_id(arguments.id);
  request.set_from_checkpoint(arguments.checkpoint);
  request.set_request_id(client::NewRequestId());
  const std::vector<client::FieldViolation> violations = ApplyAssignments(
      arguments.source.overrides, request.mutable_overrides(), request.mutable_override_mask());
  if (!violations.empty()) {
    return session.Fail(absl::StrCat("the overrides have ", violations.size(), " faults"),
                        violations);
  }
  const absl::StatusOr<v1::Job> created = client.RetryJob(request);
  if (!created.ok()) return session.Fail(created.status());
  const std::string id = JobId(created->name());
  const bool bare = arguments.quiet || session.format() == Format::kName;
  return session.Show(*created,
                      bare ? absl::StrCat(id, "\n")
                           : absl::StrCat("submitted ", id, ", again ", JobId(job.name()), "\n"));
}

ExitCode Delete(const Session& session, const Arguments& arguments, client::ServerClient& client,
                const v1::Job& job) {
  const std::string id = JobId(job.name());
  const std::string what = arguments.outputs ? absl::StrCat(id, " and ", job.output_directory())
                                             : absl::StrCat(id, " (its outputs stay)");
  if (!Confirm(session, arguments, absl::StrCat("delete ", what, "?"))) return kError;
  v1::DeleteJobRequest request;
  request.set_name(job.name());
  request.set_etag(arguments.etag);
  request.set_delete_outputs(arguments.outputs);
  // The call may be repeated after a cut connection.
  request.set_allow_missing(true);
  const absl::Status deleted = client.DeleteJob(request);
  if (!deleted.ok()) return session.Fail(deleted);
  return session.Show(job, absl::StrCat("deleted ", id, "\n"));
}

}  // namespace

ExitCode RunSuspend(Session& session, const Arguments& arguments) {
  return ChangeState(session, arguments, &client::ServerClient::SuspendJob);
}

ExitCode RunResume(Session& session, const Arguments& arguments) {
  return ChangeState(session, arguments, &client::ServerClient::ResumeJob);
}

ExitCode RunCheckpoint(Session& session, const Arguments& arguments) {
  return ChangeState(session, arguments, &client::ServerClient::CheckpointJob);
}

ExitCode RunSample(Session& session, const Arguments& arguments) {
  return ChangeState(session, arguments, &client::ServerClient::SampleJob);
}

ExitCode RunCancel(Session& session, const Arguments& arguments) {
  return CallForJob(
      session, arguments,
      [&arguments](client::ServerClient& client, const v1::Job& job) {
        v1::CancelJobRequest request;
        request.set_name(job.name());
        request.set_mode(arguments.now ? v1::CancelJobRequest::MODE_NOW
                                       : v1::CancelJobRequest::MODE_GRACEFUL);
        request.set_reason(arguments.reason);
        return client.CancelJob(request);
      },
      [&session](const v1::Job& after) { return ShowState(session, after); });
}

ExitCode RunRetry(Session& session, const Arguments& arguments) {
  return WithJob(session, arguments, [&](client::ServerClient& client, const v1::Job& job) {
    return Retry(session, arguments, client, job);
  });
}

ExitCode RunDelete(Session& session, const Arguments& arguments) {
  return WithJob(session, arguments, [&](client::ServerClient& client, const v1::Job& job) {
    return Delete(session, arguments, client, job);
  });
}

}  // namespace blockswap::cli
