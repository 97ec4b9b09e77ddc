// SPDX-License-Identifier: Apache-2.0
// update: changes what may change of a job that was submitted.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/assignments.h"
#include "client/cli/call.h"
#include "client/cli/commands.h"
#include "client/cli/people_text.h"

namespace blockswap::cli {
namespace {

ExitCode Update(const Session& session, const Arguments& arguments, client::ServerClient& client,
                const std::string& name) {
  // A list may leave parts of a job out; the labels it has are what new ones are added to.
  const absl::StatusOr<v1::Job> job = client.GetJob(name);
  if (!job.ok()) return session.Fail(job.status());
  v1::UpdateJobRequest request;
  request.mutable_job()->set_name(name);
  request.mutable_job()->set_etag(arguments.etag);
  *request.mutable_job()->mutable_spec() = job->spec();
  const std::vector<client::FieldViolation> violations =
      ApplyAssignments(arguments.source.overrides, request.mutable_job()->mutable_spec(),
                       request.mutable_update_mask());
  if (!violations.empty()) {
    return session.Fail(absl::StrCat("the update has ", violations.size(), " faults"), violations);
  }
  const absl::StatusOr<v1::Job> updated = client.UpdateJob(request);
  if (!updated.ok()) return session.Fail(updated.status());
  return session.Show(*updated, absl::StrCat("updated ", JobId(updated->name()), " ",
                                             Coloured(updated->state(), session.colour()), "\n"));
}

}  // namespace

ExitCode RunUpdate(Session& session, const Arguments& arguments) {
  return WithJob(session, arguments, [&](client::ServerClient& client, const v1::Job& job) {
    return Update(session, arguments, client, job.name());
  });
}

}  // namespace blockswap::cli
