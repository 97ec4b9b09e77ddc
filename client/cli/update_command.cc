// SPDX-License-Identifier: Apache-2.0
// update: changes what may change of a job that was submitted.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/job_lookup.h"
#include "client/cli/job_text.h"
#include "client/cli/people_text.h"
#include "proto/job_file/job_file.h"

namespace blockswap::cli {
namespace {

// "labels.team" changes the map of labels; everything else is a field of its own.
std::string MaskPath(const std::string& assignment) {
  const std::string path = assignment.substr(0, assignment.find('='));
  return absl::StartsWith(path, "labels.") ? "labels" : path;
}

}  // namespace

ExitCode RunUpdate(Session& session, const Arguments& arguments) {
  const absl::StatusOr<client::ServerClient*> client = session.Client();
  if (!client.ok()) return session.Fail(client.status());
  absl::StatusOr<v1::Job> job = FindJob(**client, arguments.jobs[0]);
  // A list may leave parts of a job out; the labels it has are what new ones are added to.
  if (job.ok()) job = (*client)->GetJob(job->name());
  if (!job.ok()) return session.Fail(job.status());
  v1::UpdateJobRequest request;
  request.mutable_job()->set_name(job->name());
  request.mutable_job()->set_etag(arguments.etag);
  *request.mutable_job()->mutable_spec() = job->spec();
  std::vector<client::FieldViolation> violations;
  for (const std::string& assignment : arguments.source.overrides) {
    const absl::Status applied =
        proto::ApplyOverride(assignment, request.mutable_job()->mutable_spec());
    if (!applied.ok()) {
      violations.push_back({absl::StrCat("--set ", assignment), std::string(applied.message())});
      continue;
    }
    const std::string path = MaskPath(assignment);
    auto* paths = request.mutable_update_mask()->mutable_paths();
    if (std::find(paths->begin(), paths->end(), path) == paths->end()) *paths->Add() = path;
  }
  if (!violations.empty()) {
    return session.Fail(absl::StrCat("the update has ", violations.size(), " faults"), violations);
  }
  const absl::StatusOr<v1::Job> updated = (*client)->UpdateJob(request);
  if (!updated.ok()) return session.Fail(updated.status());
  if (session.json()) {
    session.PrintJson(*updated);
    return kOk;
  }
  session.out() << "updated " << JobId(updated->name()) << " "
                << Coloured(updated->state(), session.colour()) << "\n";
  return kOk;
}

}  // namespace blockswap::cli
