// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/base/wall_clock.h"
#include "server/jobs/transitions.h"
#include "server/store/job_rows.h"
#include "server/store/job_store.h"
#include "server/store/link_rows.h"

namespace blockswap::server {
namespace {

absl::StatusOr<std::vector<JobRecord>> ReadJobs(Statement query) {
  std::vector<JobRecord> jobs;
  while (true) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return jobs;
    jobs.push_back(ReadJob(query));
  }
}

MetricPoint ReadPoint(const Statement& row) {
  MetricPoint point;
  point.step = row.Int(0);
  point.loss = row.Real(1);
  point.learning_rate = row.Real(2);
  point.grad_norm = row.Real(3);
  point.seconds = row.Real(4);
  point.h2d_bytes = row.Int(5);
  point.stall_seconds = row.Real(6);
  point.device_bytes_peak = row.Int(7);
  return point;
}

}  // namespace

absl::StatusOr<JobRecord> JobStore::GetJob(const std::string& id) {
  base::MutexLock lock(read_mutex_);
  return GetJobLocked(*reader_, "id", id);
}

absl::StatusOr<std::optional<JobRecord>> JobStore::FindRequest(const std::string& request_id,
                                                               const std::string& request_hash) {
  base::MutexLock lock(read_mutex_);
  return FindRequestLocked(*reader_, request_id, request_hash);
}

absl::StatusOr<std::vector<JobRecord>> JobStore::ListJobs(const JobFilter& filter, int64_t before,
                                                          int limit) {
  base::MutexLock lock(read_mutex_);
  const SteadyTime start = SteadyNow();
  std::string sql = absl::StrCat(kSelectJobs, " WHERE created_sequence<?");
  if (filter.state.has_value())
    absl::StrAppend(&sql, " AND state=", static_cast<int>(*filter.state));
  if (filter.active) absl::StrAppend(&sql, " AND state NOT IN (8, 9, 10)");
  if (filter.terminal) absl::StrAppend(&sql, " AND state IN (8, 9, 10)");
  absl::StrAppend(&sql, " ORDER BY created_sequence DESC");
  auto query = reader_->Prepare(sql.c_str());
  query.Bind(before > 0 ? before : INT64_MAX);
  std::vector<JobRecord> jobs;
  while (static_cast<int>(jobs.size()) < limit) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) break;
    JobRecord job = ReadJob(query);
    if (filter.Matches(job)) jobs.push_back(std::move(job));
  }
  if (on_timing_) on_timing_(false, std::chrono::duration<double>(SteadyNow() - start).count());
  return jobs;
}

absl::StatusOr<std::optional<MeasuredLink>> JobStore::FindLink(const std::string& device_key) {
  base::MutexLock lock(read_mutex_);
  return GetLink(*reader_, device_key);
}

absl::StatusOr<std::vector<JobRecord>> JobStore::WaitingJobs() {
  base::MutexLock lock(read_mutex_);
  return ReadJobs(reader_->Prepare(
      absl::StrCat(kSelectJobs, " WHERE state IN (1, 6) ORDER BY priority DESC, created_sequence")
          .c_str()));
}

absl::StatusOr<std::vector<JobRecord>> JobStore::JobsWithWorkers() {
  base::MutexLock lock(read_mutex_);
  return ReadJobs(reader_->Prepare(
      absl::StrCat(kSelectJobs, " WHERE state IN (2, 3, 4, 7) ORDER BY created_sequence").c_str()));
}

absl::StatusOr<std::map<JobState, int64_t>> JobStore::CountJobs() {
  base::MutexLock lock(read_mutex_);
  std::map<JobState, int64_t> counts;
  for (int state = 1; state <= kNumJobStates; ++state) counts[static_cast<JobState>(state)] = 0;
  auto query = reader_->Prepare("SELECT state, COUNT(*) FROM jobs GROUP BY state");
  while (true) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return counts;
    counts[static_cast<JobState>(query.Int(0))] = query.Int(1);
  }
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

absl::StatusOr<std::vector<AttemptRecord>> JobStore::ListAttempts(const std::string& job_uid) {
  base::MutexLock lock(read_mutex_);
  auto query =
      reader_->Prepare(absl::StrCat(kSelectAttempts, " WHERE job_uid=? ORDER BY number").c_str());
  query.BindText(job_uid);
  std::vector<AttemptRecord> attempts;
  while (true) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return attempts;
    attempts.push_back(ReadAttempt(query));
  }
}

absl::StatusOr<std::vector<CheckpointRecord>> JobStore::ListCheckpoints(
    const std::string& job_uid) {
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare(
      "SELECT step, bytes, create_micros, directory, manifest_sha256 FROM checkpoints WHERE "
      "job_uid=? "
      "ORDER BY step");
  query.BindText(job_uid);
  std::vector<CheckpointRecord> checkpoints;
  while (true) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return checkpoints;
    checkpoints.push_back({query.Int(0), query.Int(1), query.Int(2), query.Text(3), query.Text(4)});
  }
}

absl::StatusOr<std::vector<MetricPoint>> JobStore::ListMetricPoints(const std::string& job_uid,
                                                                    int64_t from_step,
                                                                    int64_t max_points) {
  base::MutexLock lock(read_mutex_);
  auto count =
      reader_->Prepare("SELECT COUNT(*), MAX(step) FROM metric_points WHERE job_uid=? AND step>=?");
  BLOCKSWAP_RETURN_IF_ERROR(count.BindText(job_uid).Bind(from_step).Step().status());
  const int64_t stride = std::max<int64_t>(1, (count.Int(0) + max_points - 1) / max_points);
  const int64_t last = count.Int(1);
  auto query = reader_->Prepare(
      "SELECT step, loss, learning_rate, grad_norm, seconds, h2d_bytes, stall_seconds, "
      "device_bytes_peak FROM metric_points WHERE job_uid=? AND step>=? ORDER BY step");
  query.BindText(job_uid).Bind(from_step);
  std::vector<MetricPoint> points;
  for (int64_t index = 0;; ++index) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return points;
    if (index % stride == 0) {
      points.push_back(ReadPoint(query));
    } else if (query.Int(0) == last) {
      points.back() = ReadPoint(query);
    }
  }
}

absl::StatusOr<std::vector<EventRecord>> JobStore::EventsAfter(int64_t sequence,
                                                               const std::string& job_id,
                                                               int limit) {
  base::MutexLock lock(read_mutex_);
  auto query = reader_->Prepare(absl::StrCat(kSelectEvents, " WHERE sequence>?",
                                             job_id.empty() ? "" : " AND job_id=?",
                                             " ORDER BY sequence LIMIT ", limit)
                                    .c_str());
  query.Bind(sequence);
  if (!job_id.empty()) query.BindText(job_id);
  std::vector<EventRecord> events;
  while (true) {
    BLOCKSWAP_ASSIGN_OR_RETURN(const bool row, query.Step());
    if (!row) return events;
    events.push_back(ReadEvent(query));
  }
}

}  // namespace blockswap::server
