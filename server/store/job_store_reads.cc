// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/wall_clock.h"
#include "server/jobs/transitions.h"
#include "server/store/history_rows.h"
#include "server/store/job_rows.h"
#include "server/store/job_store.h"
#include "server/store/link_rows.h"
#include "server/store/row_columns.h"

namespace blockswap::server {
absl::StatusOr<JobRecord> JobStore::GetJob(const std::string& id) {
  base::MutexLock lock(read_mutex_);
  return GetJobLocked(*reader_, "id", id);
}

absl::StatusOr<std::optional<JobRecord>> JobStore::FindRequest(const std::string& request_id,
                                                               const std::string& request_hash) {
  base::MutexLock lock(read_mutex_);
  return FindRequestLocked(*reader_, request_id, request_hash);
}

absl::StatusOr<std::vector<JobRecord>> JobStore::ListJobs(const JobListQuery& query) {
  base::MutexLock lock(read_mutex_);
  // All statements read one state of the database.
  BLOCKSWAP_ASSIGN_OR_RETURN(const Snapshot snapshot, Snapshot::Begin(*reader_));
  return ListJobsLocked(query);
}

absl::StatusOr<std::vector<JobRecord>> JobStore::ListJobsLocked(const JobListQuery& query) {
  const SteadyTime start = SteadyNow();
  auto keys = PrepareList(query).On(*reader_);
  auto rows = reader_->Prepare(absl::StrCat(SelectJobs(), " WHERE created_sequence=?").c_str());
  std::vector<JobRecord> jobs;
  while (true) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool more, keys.Step());
    if (!more) break;
    rows.Reset();
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool found, rows.Bind(keys.Int(0)).Step());
    if (found) jobs.push_back(ReadJob(rows));
  }
  if (on_timing_) on_timing_(false, std::chrono::duration<double>(SteadyNow() - start).count());
  return jobs;
}

absl::StatusOr<int64_t> JobStore::LastSequenceLocked() {
  auto query = reader_->Prepare("SELECT COALESCE(MAX(sequence), 0) FROM events");
  BLOCKSWAP_RETURN_IF_ERROR(query.Step().status());
  return query.Int(0);
}

absl::StatusOr<JobsAsOf> JobStore::ListJobsAsOf(const JobFilter& filter, int64_t before,
                                                int limit) {
  JobListQuery query;
  query.filter = filter;
  query.limit = limit;
  if (before > 0) query.after = PageKey{before, 0, ""};
  base::MutexLock lock(read_mutex_);
  BLOCKSWAP_ASSIGN_OR_RETURN(const Snapshot snapshot, Snapshot::Begin(*reader_));
  JobsAsOf read;
  BLOCKSWAP_ASSIGN_OR_RETURN(read.sequence, LastSequenceLocked());
  BLOCKSWAP_ASSIGN_OR_RETURN(read.jobs, ListJobsLocked(query));
  return read;
}

absl::StatusOr<JobsAsOf> JobStore::GetJobAsOf(const std::string& id) {
  base::MutexLock lock(read_mutex_);
  BLOCKSWAP_ASSIGN_OR_RETURN(const Snapshot snapshot, Snapshot::Begin(*reader_));
  JobsAsOf read;
  BLOCKSWAP_ASSIGN_OR_RETURN(read.sequence, LastSequenceLocked());
  BLOCKSWAP_ASSIGN_OR_RETURN(JobRecord job, GetJobLocked(*reader_, "id", id));
  read.jobs.push_back(std::move(job));
  return read;
}

absl::StatusOr<std::optional<MeasuredLink>> JobStore::FindLink(const std::string& device_key) {
  base::MutexLock lock(read_mutex_);
  return GetLink(*reader_, device_key);
}

absl::StatusOr<std::vector<JobRecord>> JobStore::WaitingJobs() {
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare(
      absl::StrCat(SelectJobs(), " WHERE state IN (1, 6) ORDER BY priority DESC, created_sequence")
          .c_str());
  return ReadRows(query, ReadJob);
}

absl::StatusOr<std::vector<JobRecord>> JobStore::JobsWithWorkers() {
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare(
      absl::StrCat(SelectJobs(), " WHERE state IN (2, 3, 4, 7) ORDER BY created_sequence").c_str());
  return ReadRows(query, ReadJob);
}

absl::StatusOr<std::vector<WaitingJob>> JobStore::WaitingQueue() {
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare(
      absl::StrCat(SelectWaiting(),
                   " WHERE state IN (1, 6) ORDER BY priority DESC, created_sequence")
          .c_str());
  return ReadRows(query, ReadWaiting);
}

absl::StatusOr<std::vector<std::string>> JobStore::OverdueJobs(int64_t now_micros) {
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare(
      "SELECT id FROM jobs WHERE deadline_micros > 0 AND state NOT IN (8, 9, 10) AND "
      "deadline_micros<=? ORDER BY deadline_micros");
  query.Bind(now_micros);
  return ReadRows(query, [](const Statement& row) { return row.Text(0); });
}

absl::StatusOr<std::map<JobState, int64_t>> JobStore::CountJobs() {
  std::map<JobState, int64_t> counts;
  for (int state = 1; state <= kNumJobStates; ++state) {
    counts[static_cast<JobState>(state)] = CountOf(static_cast<JobState>(state));
  }
  return counts;
}

absl::StatusOr<int64_t> JobStore::CountHeldJobs() {
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare(
      "SELECT COUNT(*) FROM jobs INDEXED BY jobs_waiting WHERE state IN (1, 6) AND held<>0");
  BLOCKSWAP_RETURN_IF_ERROR(query.Step().status());
  return query.Int(0);
}

absl::StatusOr<int64_t> JobStore::QueuePosition(const JobRecord& job) {
  if (!IsWaiting(job.state)) return 0;
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare(
      "SELECT COUNT(*) FROM jobs WHERE state IN (1, 6) AND (priority>? OR (priority=? AND "
      "created_sequence<?))");
  query.Bind(int64_t{job.priority}).Bind(int64_t{job.priority}).Bind(job.created_sequence);
  BLOCKSWAP_RETURN_IF_ERROR(query.Step().status());
  return query.Int(0) + 1;
}

absl::StatusOr<std::map<std::string, int64_t>> JobStore::QueuePositions(
    const std::vector<JobRecord>& jobs) {
  std::map<std::string, int64_t> positions;
  std::set<std::string> wanted;
  for (const JobRecord& job : jobs) {
    if (IsWaiting(job.state)) wanted.insert(job.id);
  }
  if (wanted.empty()) return positions;
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare(
      "SELECT id FROM jobs INDEXED BY jobs_waiting WHERE state IN (1, 6) "
      "ORDER BY priority DESC, created_sequence");
  for (int64_t position = 1; positions.size() < wanted.size(); ++position) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) break;
    const std::string id = query.Text(0);
    if (wanted.count(id) != 0) positions[id] = position;
  }
  return positions;
}

absl::StatusOr<std::vector<AttemptRecord>> JobStore::ListAttempts(const std::string& job_uid) {
  base::MutexLock lock(read_mutex_);
  auto query =
      reader_->Prepare(absl::StrCat(SelectAttempts(), " WHERE job_uid=? ORDER BY number").c_str());
  query.BindText(job_uid);
  return ReadRows(query, ReadAttempt);
}

absl::StatusOr<std::vector<CheckpointRecord>> JobStore::ListCheckpoints(
    const std::string& job_uid) {
  base::MutexLock lock(read_mutex_);
  auto query =
      reader_->Prepare(absl::StrCat(SelectCheckpoints(), " WHERE job_uid=? ORDER BY step").c_str());
  query.BindText(job_uid);
  return ReadRows(query, ReadCheckpoint);
}

absl::StatusOr<ThinnedPoints> JobStore::ListMetricPoints(const std::string& job_uid,
                                                         const PointRange& range) {
  base::MutexLock lock(read_mutex_);
  BLOCKSWAP_ASSIGN_OR_RETURN(const Snapshot snapshot, Snapshot::Begin(*reader_));
  const int64_t to_step = range.to_step > 0 ? range.to_step : INT64_MAX;
  const std::string where = " WHERE job_uid=? AND step>=? AND step<=?";
  auto count = reader_->Prepare(
      absl::StrCat("SELECT COUNT(*), MAX(step) FROM metric_points", where).c_str());
  count.BindText(job_uid).Bind(range.from_step).Bind(to_step);
  BLOCKSWAP_RETURN_IF_ERROR(count.Step().status());
  ThinnedPoints thinned;
  thinned.total = count.Int(0);
  const int64_t stride =
      std::max<int64_t>(1, (thinned.total + range.max_points - 1) / range.max_points);
  const int64_t last = count.Int(1);
  auto query = reader_->Prepare(absl::StrCat(SelectPoints(), where, " ORDER BY step").c_str());
  query.BindText(job_uid).Bind(range.from_step).Bind(to_step);
  for (int64_t index = 0;; ++index) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return thinned;
    if (index % stride == 0) {
      thinned.points.push_back(ReadPoint(query));
    } else if (query.Int(0) == last) {
      // In the place of the one before it, unless that is the first.
      if (thinned.points.size() > 1) thinned.points.pop_back();
      if (range.max_points > 1) thinned.points.push_back(ReadPoint(query));
    }
  }
}

absl::StatusOr<std::vector<EventRecord>> JobStore::EventsAfter(int64_t sequence,
                                                               const std::string& job_id,
                                                               int limit) {
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare(absl::StrCat(SelectEvents(), " WHERE sequence>?",
                                             job_id.empty() ? "" : " AND job_id=?",
                                             " ORDER BY sequence LIMIT ", limit)
                                    .c_str());
  query.Bind(sequence);
  if (!job_id.empty()) query.BindText(job_id);
  return ReadRows(query, ReadEvent);
}

}  // namespace blockswap::server
