// SPDX-License-Identifier: Apache-2.0
// RetryJob: a new job from a finished one, and the checkpoint it goes on from.
#include <google/protobuf/util/field_mask_util.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/jobs/transitions.h"
#include "server/rpc/job_outputs.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/spec_merge.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {
namespace {

// What may differ from the job whose checkpoint is continued: none of it changes a bit of the
// result. (More steps do where the learning rate depends on their number: the worker says so.)
const std::vector<std::string>& FreeOfResult() {
  static const auto* fields = new std::vector<std::string>{"memory",
                                                           "sampling",
                                                           "output",
                                                           "device",
                                                           "retry",
                                                           "priority",
                                                           "labels",
                                                           "deadline",
                                                           "hold",
                                                           "training.max_steps",
                                                           "training.max_epochs",
                                                           "training.threads"};
  return *fields;
}

absl::Status CheckpointNotFound(const JobRecord& job, const std::string& asked,
                                const std::vector<CheckpointRecord>& there) {
  std::string steps;
  for (const CheckpointRecord& checkpoint : there) {
    absl::StrAppend(&steps, steps.empty() ? "" : ", ", checkpoint.step);
  }
  return WithReason(
      absl::NotFoundError(
          absl::StrCat("job ", job.id, " has no checkpoint ", asked, "; there ",
                       steps.empty() ? "are none" : absl::StrCat("are steps ", steps))),
      "CHECKPOINT_NOT_FOUND",
      {{"checkpoint", absl::StrCat("jobs/", job.id, "/checkpoints/", asked)}, {"job", job.id}});
}

// `asked` is empty, "latest", "none", a step, or a name that ends in one.
absl::StatusOr<std::optional<CheckpointRecord>> ChooseCheckpoint(
    const JobRecord& job, std::string asked, const std::vector<CheckpointRecord>& there) {
  if (asked == "none") return std::optional<CheckpointRecord>();
  if (asked.empty() || asked == "latest") {
    if (there.empty()) return std::optional<CheckpointRecord>();
    return std::optional<CheckpointRecord>(there.back());
  }
  absl::string_view rest = asked;
  absl::ConsumePrefix(&rest, absl::StrCat("jobs/", job.id, "/"));
  absl::ConsumePrefix(&rest, "checkpoints/");
  asked = std::string(rest);
  int64_t step = 0;
  if (!absl::SimpleAtoi(asked, &step)) {
    return SpecInvalid(
        {{"from_checkpoint", "must be jobs/{job}/checkpoints/{step}, a step, latest or none"}});
  }
  for (const CheckpointRecord& checkpoint : there) {
    if (checkpoint.step == step) return std::optional<CheckpointRecord>(checkpoint);
  }
  return CheckpointNotFound(job, asked, there);
}

// Takes the overrides over; violations for paths that are none.
std::vector<Violation> Override(const v1::RetryJobRequest& request, v1::JobSpec* spec,
                                std::vector<std::string>* changed) {
  std::vector<Violation> violations;
  for (const std::string& given : request.override_mask().paths()) {
    const std::string path(absl::StripPrefix(given, "spec."));
    if (!google::protobuf::util::FieldMaskUtil::IsValidPath<v1::JobSpec>(path)) {
      violations.push_back({given, "is no field of a job"});
      continue;
    }
    if (AgreeAt(path, *spec, request.overrides())) continue;
    TakeOverPaths({path}, request.overrides(), spec);
    changed->push_back(path);
  }
  if (request.override_mask().paths_size() == 0 && request.has_overrides() &&
      !SetPaths(request.overrides()).empty()) {
    violations.push_back({"override_mask", "names no field, though there are overrides"});
  }
  return violations;
}

}  // namespace

absl::StatusOr<TrainingServiceImpl::NewJob> TrainingServiceImpl::PrepareRetry(
    const v1::RetryJobRequest& request) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string id, JobIdOf(request.name()));
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord old, rpc_.store.GetJob(id));
  if (!IsTerminal(old.state)) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          "job ", id, " is ", StateName(old.state),
                          " and cannot be retried; only a job that is over can, and one that "
                          "still may go on has attempts of its own")),
                      "INVALID_STATE", {{"state", std::string(StateName(old.state))}, {"job", id}});
  }
  NewJob job;
  if (!job.spec.ParseFromString(old.spec)) {
    return absl::DataLossError(absl::StrCat("the stored spec of job ", id, " does not parse"));
  }
  std::vector<std::string> changed;
  job.violations = Override(request, &job.spec, &changed);
  BLOCKSWAP_ASSIGN_OR_RETURN(auto checkpoints, rpc_.store.ListCheckpoints(old.uid));
  BLOCKSWAP_ASSIGN_OR_RETURN(
      const std::optional<CheckpointRecord> checkpoint,
      ChooseCheckpoint(old, request.from_checkpoint(), OnDisk(std::move(checkpoints))));
  job.retry_of = id;
  // An operator's retry of somebody's job stays that somebody's.
  job.tenant = old.tenant;
  job.template_name = old.template_name;
  if (!checkpoint.has_value()) return job;
  for (const std::string& path : changed) {
    if (IsWithin(path, FreeOfResult())) continue;
    job.violations.push_back(
        {path, absl::StrCat("decides the result, and the checkpoint of step ", checkpoint->step,
                            " was made with another value; start from the beginning with "
                            "from_checkpoint none, or leave it as it was")});
  }
  job.from_checkpoint = absl::StrCat("jobs/", id, "/checkpoints/", checkpoint->step);
  job.prepare = [old, checkpoint = *checkpoint](const JobRecord& made) {
    return HandOnCheckpoint(old, checkpoint, made);
  };
  return job;
}

}  // namespace blockswap::server
