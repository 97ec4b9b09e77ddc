// SPDX-License-Identifier: Apache-2.0
#include "tests/server/testing/many_jobs.h"

#include "absl/strings/str_cat.h"
#include "blockswap/v1/training.pb.h"
#include "offload/base/status_macros.h"
#include "server/jobs/transitions.h"
#include "server/store/history_rows.h"
#include "server/store/job_rows.h"
#include "server/store/schema.h"

namespace blockswap::server {
namespace {

constexpr int64_t kFirstMicros = 1760000000000000;

JobRecord MakeJob(int index, const ManyJobs& jobs) {
  const bool is_finished = index < jobs.finished;
  JobRecord job;
  job.id = is_finished ? absl::StrCat("finished-", index)
                       : absl::StrCat("queued-", index - jobs.finished);
  job.name = job.id;
  job.uid = absl::StrCat("uid-", index);
  v1::JobSpec spec;
  spec.set_name(job.name);
  spec.mutable_model()->set_weights("models/base.safetensors");
  job.labels["team"] = absl::StrCat("team-", index % 20);
  (*spec.mutable_labels())["team"] = job.labels["team"];
  spec.set_priority(index % 5);
  job.spec = spec.SerializeAsString();
  job.spec_json = absl::StrCat("{\"name\":\"", job.name, "\"}");
  job.plan_json = std::string(static_cast<size_t>(jobs.plan_bytes), '{');
  job.priority = index % 5;
  job.create_micros = job.update_micros = kFirstMicros + int64_t{index} * 1000000;
  job.created_sequence = index + 1;
  job.state = is_finished ? JobState::kSucceeded : JobState::kQueued;
  if (is_finished) job.end_micros = job.update_micros + (index * 7919 % 100000);
  // More than any device has: what waits goes on waiting.
  if (!is_finished) job.needs.device_bytes = int64_t{1} << 50;
  job.state_reason = is_finished ? "FINISHED" : "WAITING_FOR_DEVICE";
  return job;
}

}  // namespace

absl::Status MakeStore(const std::string& path, const ManyJobs& jobs) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const auto database, Database::Open(path, /*read_only=*/false));
  BLOCKSWAP_RETURN_IF_ERROR(MigrateSchema(*database, path));
  BLOCKSWAP_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(*database));
  for (int i = 0; i < jobs.finished + jobs.queued; ++i) {
    const JobRecord job = MakeJob(i, jobs);
    BLOCKSWAP_RETURN_IF_ERROR(InsertJob(*database, job));
    EventRecord event = MakeEvent(EventType::kCreated, "SUBMITTED", "");
    event.sequence = job.created_sequence;
    event.job_id = job.id;
    event.state = JobState::kQueued;
    event.time_micros = job.create_micros;
    BLOCKSWAP_RETURN_IF_ERROR(InsertEvent(*database, event));
  }
  return transaction.Commit();
}

}  // namespace blockswap::server
