// SPDX-License-Identifier: Apache-2.0
// DeleteJob, GetCheckpoint and DeleteCheckpoint.
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/jobs/transitions.h"
#include "server/rpc/job_outputs.h"
#include "server/rpc/proto_conversion.h"
#include "server/rpc/training_service.h"

namespace blockswap::server {
namespace {

struct CheckpointName {
  std::string job_id;
  int64_t step = 0;
};

absl::StatusOr<CheckpointName> ParseCheckpointName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  CheckpointName parsed;
  if (parts.size() != 4 || parts[0] != "jobs" || !IsValidJobId(parts[1]) ||
      parts[2] != "checkpoints" || !absl::SimpleAtoi(parts[3], &parsed.step)) {
    return SpecInvalid({{"name", "must be jobs/{job}/checkpoints/{step}"}});
  }
  parsed.job_id = parts[1];
  return parsed;
}

absl::Status CheckpointNotFound(const std::string& name) {
  return WithReason(absl::NotFoundError(absl::StrCat("no such checkpoint: ", name)),
                    "CHECKPOINT_NOT_FOUND", {{"checkpoint", name}});
}

absl::Status CheckpointInUse(const JobRecord& job, const std::string& name) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          name, " is the newest checkpoint of job ", job.id, ", which is ", StateName(job.state),
          " and would go on from there; wait until the job is over, or cancel it")),
      "CHECKPOINT_IN_USE",
      {{"checkpoint", name}, {"job", job.id}, {"state", std::string(StateName(job.state))}});
}

// The index of the step, and whether a later one is there.
std::optional<size_t> Find(const std::vector<CheckpointRecord>& checkpoints, int64_t step) {
  for (size_t i = 0; i < checkpoints.size(); ++i) {
    if (checkpoints[i].step == step) return i;
  }
  return std::nullopt;
}

}  // namespace

absl::Status TrainingServiceImpl::DoDeleteJob(const v1::DeleteJobRequest& request) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::string id, JobIdOf(request.name()));
  const auto may = [&request](const JobRecord& job) {
    return request.etag().empty() || request.etag() == EtagOf(job)
               ? absl::OkStatus()
               : EtagMismatch(job, request.etag());
  };
  EventRecord event = MakeEvent(EventType::kDeleted, "DELETED_BY_CLIENT",
                                request.delete_outputs() ? "with its outputs" : "");
  const auto deleted = rpc_.store.DeleteJob(id, event, may);
  if (request.allow_missing() && absl::IsNotFound(deleted.status())) return absl::OkStatus();
  BLOCKSWAP_RETURN_IF_ERROR(deleted.status());
  const absl::Status removed =
      request.delete_outputs() ? RemoveOutputs(*deleted) : RemoveLogs(*deleted);
  if (removed.ok()) return removed;
  return absl::FailedPreconditionError(
      absl::StrCat("job ", id, " is deleted, but ", removed.message()));
}

absl::Status TrainingServiceImpl::DoGetCheckpoint(const v1::GetCheckpointRequest& request,
                                                  v1::Checkpoint* response) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(request.name()));
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, rpc_.store.GetJob(name.job_id));
  BLOCKSWAP_ASSIGN_OR_RETURN(auto stored, rpc_.store.ListCheckpoints(job.uid));
  const std::vector<CheckpointRecord> there = OnDisk(std::move(stored));
  const std::optional<size_t> index = Find(there, name.step);
  if (!index.has_value()) return CheckpointNotFound(request.name());
  *response = ToProto(job.id, there[*index]);
  return absl::OkStatus();
}

absl::Status TrainingServiceImpl::DoDeleteCheckpoint(const v1::DeleteCheckpointRequest& request) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(request.name()));
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord before, rpc_.store.GetJob(name.job_id));
  BLOCKSWAP_ASSIGN_OR_RETURN(auto stored, rpc_.store.ListCheckpoints(before.uid));
  const std::vector<CheckpointRecord> there = OnDisk(std::move(stored));
  const std::optional<size_t> index = Find(there, name.step);
  if (!index.has_value()) {
    return request.allow_missing() ? absl::OkStatus() : CheckpointNotFound(request.name());
  }
  // A newer one that comes in between does no harm; that the newest goes would.
  const bool is_newest = *index + 1 == there.size();
  const auto drop = [&](JobRecord& job, JobChange& change) {
    if (is_newest && !IsTerminal(job.state)) return CheckpointInUse(job, request.name());
    change.drop_checkpoint = name.step;
    change.events.push_back(MakeEvent(EventType::kCheckpointDeleted, "DELETED_BY_CLIENT",
                                      absl::StrCat("step ", name.step)));
    return absl::OkStatus();
  };
  BLOCKSWAP_ASSIGN_OR_RETURN(const JobRecord job, rpc_.store.UpdateJob(name.job_id, drop));
  return RemoveCheckpoint(job, there[*index]);
}

}  // namespace blockswap::server
