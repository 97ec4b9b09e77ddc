// SPDX-License-Identifier: Apache-2.0
// UpdateJob: from a field mask to a changed job, and to its worker when it has one.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/jobs/transitions.h"
#include "server/rpc/job_update.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/spec_limits.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {
namespace {

// Somebody else changed the spec between reading and writing: read again.
constexpr int kMaxTries = 4;

absl::Status JobIsOver(const JobRecord& job) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat("job ", job.id, " is ", StateName(job.state),
                                                 ": of an ended job only labels can change")),
      "INVALID_STATE", {{"state", std::string(StateName(job.state))}, {"job", job.id}});
}

bool Changes(const SpecUpdate& update, const std::string& field) {
  return std::find(update.changed.begin(), update.changed.end(), field) != update.changed.end();
}

bool ChangesMoreThanLabels(const SpecUpdate& update) {
  for (const std::string& field : update.changed) {
    if (field != "labels") return true;
  }
  return false;
}

void TakeOverSpec(const SpecUpdate& update, std::string spec_json, JobRecord& job) {
  job.spec = update.spec.SerializeAsString();
  job.spec_json = std::move(spec_json);
  TakeQueueSettings(update.spec, job);
}

// The plan of a job that waits is the server's; a worker reports its own.
void TakeOverPlan(const CheckedSpec& checked, JobRecord& job) {
  job.needs = checked.needs;
  job.swap_override = -1;  // what was asked for now has the last word
  if (HasWorker(job.state)) return;
  job.plan = checked.plan.SerializeAsString();
  job.plan_json = checked.plan.json();
  job.plan_text = checked.plan.text();
  job.warnings = checked.warnings;
}

}  // namespace

absl::Status EtagMismatch(const JobRecord& job, const std::string& etag) {
  return WithReason(absl::AbortedError(absl::StrCat("job ", job.id, " has changed since etag ",
                                                    etag, " was read, it has ", EtagOf(job),
                                                    " now; get the job and decide again")),
                    "ETAG_MISMATCH", {{"etag", EtagOf(job)}, {"job", job.id}});
}

absl::StatusOr<JobRecord> TrainingServiceImpl::TryUpdate(const v1::UpdateJobRequest& request,
                                                         const std::string& id, bool* again) {
  *again = false;
  const std::string& etag = request.job().etag();
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord before, rpc_.store.GetJob(id));
  if (!etag.empty() && etag != EtagOf(before)) return EtagMismatch(before, etag);
  v1::JobSpec spec;
  if (!spec.ParseFromString(before.spec)) {
    return absl::DataLossError(absl::StrCat("the stored spec of job ", id, " does not parse"));
  }
  const SpecUpdate update = ApplyUpdate(spec, request);
  if (update.changed.empty() && update.violations.empty()) return before;
  if (IsTerminal(before.state) && ChangesMoreThanLabels(update)) return JobIsOver(before);
  CheckedSpec checked;
  if (!IsTerminal(before.state) || !update.violations.empty()) {
    // An old deadline that has passed is not this request's fault.
    v1::JobSpec looked_at = update.spec;
    if (!Changes(update, "deadline")) looked_at.clear_deadline();
    BLOCKSWAP_ASSIGN_OR_RETURN(checked,
                               CheckSpec(looked_at, update.violations, before.create_micros));
  }
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string spec_json, SpecToJson(update.spec));
  const auto change = [&](JobRecord& job, JobChange& out) -> absl::Status {
    if (!etag.empty() && etag != EtagOf(job)) return EtagMismatch(job, etag);
    if (IsTerminal(job.state) && ChangesMoreThanLabels(update)) return JobIsOver(job);
    if (job.spec != before.spec) {
      *again = true;
      return absl::AbortedError(absl::StrCat("job ", id, " is changed by others all the time"));
    }
    TakeOverSpec(update, spec_json, job);
    if (update.memory_changed) TakeOverPlan(checked, job);
    out.events.push_back(MakeEvent(EventType::kUpdated, "UPDATED_BY_CLIENT",
                                   absl::StrCat(absl::StrJoin(update.changed, ", "), " changed")));
    return absl::OkStatus();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(JobRecord job, rpc_.store.UpdateJob(id, change));
  if (update.memory_changed && HasWorker(job.state)) rpc_.scheduler.UpdateWorkerMemory(job);
  rpc_.scheduler.Wake();
  return job;
}

absl::Status TrainingServiceImpl::DoUpdateJob(const v1::UpdateJobRequest& request,
                                              v1::Job* response) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string id, JobIdOf(request.job().name()));
  bool again = true;
  absl::StatusOr<JobRecord> job;
  for (int i = 0; i < kMaxTries && again; ++i) job = TryUpdate(request, id, &again);
  return Fill(job, v1::JOB_VIEW_FULL, response);
}

}  // namespace blockswap::server
