// SPDX-License-Identifier: Apache-2.0
// What leaves the store, and copies and checks of the whole of it.
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/reason.h"
#include "server/base/wall_clock.h"
#include "server/jobs/transitions.h"
#include "server/store/history_rows.h"
#include "server/store/job_store.h"
#include "server/store/schema.h"
#include "server/store/store_file.h"

namespace blockswap::server {
namespace {

absl::Status NotTerminal(const JobRecord& job) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat("job ", job.id, " is ", StateName(job.state),
                                                 " and cannot be deleted; cancel it first")),
      "INVALID_STATE",
      {{"state", std::string(StateName(job.state))}, {"job", job.id}, {"allowed", "cancel"}});
}

}  // namespace

absl::StatusOr<JobRecord> JobStore::DeleteJob(
    const std::string& id, const EventRecord& event,
    absl::FunctionRef<absl::Status(const JobRecord& job)> may) {
  base::MutexLock lock(write_mutex_);
  auto begun = Transaction::Begin(*writer_);
  if (!begun.ok()) return Failed(begun.status());
  Transaction transaction = *std::move(begun);
  BLOCKSWAP_ASSIGN_OR_RETURN(JobRecord job, GetJobLocked(*writer_, "id", id));
  if (!IsTerminal(job.state)) return NotTerminal(job);
  BLOCKSWAP_RETURN_IF_ERROR(may(job));
  JobRecord last = job;
  last.update_micros = WallMicros();
  std::vector<EventRecord> events = {event};
  NumberEvents(last, events);
  absl::Status written = DeleteHistory(*writer_, job);
  if (written.ok()) {
    auto row = writer_->Prepare("DELETE FROM jobs WHERE uid=?");
    written = row.BindText(job.uid).Run();
  }
  if (written.ok()) {
    // The id may be given to another job: the request that made this one must not find that one.
    auto requests = writer_->Prepare("UPDATE request_ids SET job_id='' WHERE job_id=?");
    written = requests.BindText(job.id).Run();
  }
  if (written.ok()) written = InsertEvent(*writer_, events[0]);
  if (written.ok()) written = transaction.Commit();
  if (!written.ok()) return Failed(std::move(written));
  Count(job.state, -1);
  Committed(job, events);
  return job;
}

absl::StatusOr<std::vector<std::string>> JobStore::ExpiredJobs(int64_t ended_before_micros,
                                                               int64_t keep, int limit) {
  int64_t finished = 0;
  for (int state = 1; state <= kNumJobStates; ++state) {
    if (IsTerminal(static_cast<JobState>(state))) finished += CountOf(static_cast<JobState>(state));
  }
  const int64_t too_many = std::max<int64_t>(0, finished - keep);
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare(
      "SELECT id, end_micros FROM jobs WHERE end_micros>0 AND state IN (8, 9, 10) "
      "ORDER BY end_micros, created_sequence LIMIT ?");
  query.Bind(int64_t{limit});
  std::vector<std::string> ids;
  while (true) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return ids;
    const bool is_beyond = static_cast<int64_t>(ids.size()) < too_many;
    if (!is_beyond && query.Int(1) >= ended_before_micros) return ids;
    ids.push_back(query.Text(0));
  }
}

absl::Status JobStore::PruneDeletedEvents(int64_t before_micros) {
  base::MutexLock lock(write_mutex_);
  auto begun = Transaction::Begin(*writer_);
  if (!begun.ok()) return Failed(begun.status());
  Transaction transaction = *std::move(begun);
  // The last event stays whatever it is: its number is where the next one goes on.
  const std::string which = "type = 10 AND time_micros<? AND sequence<?";
  auto newest =
      writer_->Prepare(absl::StrCat("SELECT MAX(sequence) FROM events WHERE ", which).c_str());
  newest.Bind(before_micros).Bind(last_sequence());
  BLOCKSWAP_RETURN_IF_ERROR(newest.Step().status());
  const int64_t floor = newest.Int(0);
  newest.Reset();
  if (floor == 0) return absl::OkStatus();
  auto prune = writer_->Prepare(absl::StrCat("DELETE FROM events WHERE ", which).c_str());
  absl::Status written = prune.Bind(before_micros).Bind(last_sequence()).Run();
  if (written.ok()) {
    auto put = writer_->Prepare("INSERT OR REPLACE INTO meta (key, value) VALUES (?,?)");
    written = put.BindText(kEventsFloorKey).BindBlob(absl::StrCat(floor)).Run();
  }
  if (written.ok()) written = transaction.Commit();
  if (!written.ok()) return Failed(std::move(written));
  events_floor_.store(std::max(floor, oldest_resumable()), std::memory_order_release);
  return absl::OkStatus();
}

absl::Status JobStore::BackUp(const std::string& path) const {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    return absl::AlreadyExistsError(absl::StrCat(path, " exists"));
  }
  // A connection of its own: reads and writes of the others go on.
  BLOCKSWAP_ASSIGN_OR_RETURN(auto database, Database::Open(path_, /*read_only=*/true));
  return CopyStore(*database, path);
}

absl::StatusOr<StoreCheck> JobStore::Check() const { return CheckStoreFile(path_); }

}  // namespace blockswap::server
