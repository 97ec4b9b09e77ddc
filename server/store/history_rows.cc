// SPDX-License-Identifier: Apache-2.0
#include "server/store/history_rows.h"

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/store/row_columns.h"

namespace blockswap::server {
namespace {

constexpr Column<AttemptRecord> kAttemptColumns[] = {
    Of<&AttemptRecord::number>("number"),
    Of<&AttemptRecord::device>("device"),
    Of<&AttemptRecord::start_micros>("start_micros"),
    Of<&AttemptRecord::end_micros>("end_micros"),
    Of<&AttemptRecord::start_step>("start_step"),
    Of<&AttemptRecord::end_step>("end_step"),
    Of<&AttemptRecord::failure>("failure"),
    Of<&AttemptRecord::counts_as_retry>("counts_as_retry"),
    Of<&AttemptRecord::pid>("pid"),
    Of<&AttemptRecord::process_start_time>("process_start_time"),
    Of<&AttemptRecord::boot_id>("boot_id"),
    Of<&AttemptRecord::socket>("socket"),
    Of<&AttemptRecord::token_hash>("token_hash"),
    Of<&AttemptRecord::last_sequence>("last_sequence"),
    Of<&AttemptRecord::granted_bytes>("granted_bytes"),
    Of<&AttemptRecord::checkpoint_seconds>("checkpoint_seconds"),
};

constexpr Column<CheckpointRecord> kCheckpointColumns[] = {
    Of<&CheckpointRecord::step>("step"),
    Of<&CheckpointRecord::bytes>("bytes"),
    Of<&CheckpointRecord::create_micros>("create_micros"),
    Of<&CheckpointRecord::directory>("directory"),
    Of<&CheckpointRecord::manifest_sha256>("manifest_sha256"),
};

constexpr Column<MetricPoint> kPointColumns[] = {
    Of<&MetricPoint::step>("step"),
    Of<&MetricPoint::loss>("loss"),
    Of<&MetricPoint::learning_rate>("learning_rate"),
    Of<&MetricPoint::grad_norm>("grad_norm"),
    Of<&MetricPoint::seconds>("seconds"),
    Of<&MetricPoint::h2d_bytes>("h2d_bytes"),
    Of<&MetricPoint::stall_seconds>("stall_seconds"),
    Of<&MetricPoint::device_bytes_peak>("device_bytes_peak"),
};

constexpr Column<EventRecord> kEventColumns[] = {
    Of<&EventRecord::sequence>("sequence"), Of<&EventRecord::type>("type"),
    Of<&EventRecord::job_id>("job_id"),     Of<&EventRecord::time_micros>("time_micros"),
    Of<&EventRecord::state>("state"),       Of<&EventRecord::reason>("reason"),
    Of<&EventRecord::message>("message"),   Of<&EventRecord::failure>("failure"),
    Of<&EventRecord::attempt>("attempt"),
};

template <typename Record, size_t kCount>
std::string Select(const Column<Record> (&columns)[kCount], const char* table) {
  return absl::StrCat("SELECT ", ColumnNames(columns), " FROM ", table);
}

// Writes the record, or writes it again, as one of the job's.
template <typename Record, size_t kCount>
absl::Status Put(Database& database, const char* table, const Column<Record> (&columns)[kCount],
                 const std::string& job_uid, const Record& record) {
  auto row =
      database.Prepare(absl::StrCat("INSERT OR REPLACE INTO ", table, " (job_uid, ",
                                    ColumnNames(columns), ") VALUES (?", MoreMarks(columns), ")")
                           .c_str());
  row.BindText(job_uid);
  BindRecord(columns, record, row);
  return row.Run();
}

}  // namespace

std::string SelectAttempts() { return Select(kAttemptColumns, "attempts"); }
std::string SelectCheckpoints() { return Select(kCheckpointColumns, "checkpoints"); }
std::string SelectPoints() { return Select(kPointColumns, "metric_points"); }
std::string SelectEvents() { return Select(kEventColumns, "events"); }

AttemptRecord ReadAttempt(const Statement& row) { return ReadRecord(kAttemptColumns, row); }
CheckpointRecord ReadCheckpoint(const Statement& row) {
  return ReadRecord(kCheckpointColumns, row);
}
MetricPoint ReadPoint(const Statement& row) { return ReadRecord(kPointColumns, row); }
EventRecord ReadEvent(const Statement& row) { return ReadRecord(kEventColumns, row); }

absl::Status PutAttempt(Database& database, const std::string& job_uid,
                        const AttemptRecord& attempt) {
  return Put(database, "attempts", kAttemptColumns, job_uid, attempt);
}

absl::Status PutCheckpoint(Database& database, const std::string& job_uid,
                           const CheckpointRecord& checkpoint) {
  return Put(database, "checkpoints", kCheckpointColumns, job_uid, checkpoint);
}

absl::Status PutMetricPoint(Database& database, const std::string& job_uid,
                            const MetricPoint& point) {
  return Put(database, "metric_points", kPointColumns, job_uid, point);
}

absl::Status InsertEvent(Database& database, const EventRecord& event) {
  auto row = database.Prepare(absl::StrCat("INSERT INTO events (", ColumnNames(kEventColumns),
                                           ") VALUES (", MoreMarks(kEventColumns).substr(1), ")")
                                  .c_str());
  BindRecord(kEventColumns, event, row);
  return row.Run();
}

absl::Status DeleteHistory(Database& database, const JobRecord& job) {
  for (const char* table : {"attempts", "checkpoints", "metric_points", "job_labels"}) {
    auto rows = database.Prepare(absl::StrCat("DELETE FROM ", table, " WHERE job_uid=?").c_str());
    BLOCKSWAP_RETURN_IF_ERROR(rows.BindText(job.uid).Run());
  }
  auto events = database.Prepare("DELETE FROM events WHERE job_id=? AND type<>?");
  return events.BindText(job.id).Bind(int64_t{static_cast<int>(EventType::kDeleted)}).Run();
}

}  // namespace blockswap::server
