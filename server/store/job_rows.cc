// SPDX-License-Identifier: Apache-2.0
#include "server/store/job_rows.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "server/store/row_columns.h"

namespace blockswap::server {

namespace {

constexpr Column<JobRecord> kColumns[] = {
    Of<&JobRecord::id>("id"),
    Of<&JobRecord::uid>("uid"),
    Of<&JobRecord::name>("name"),
    BlobOf<&JobRecord::spec>("spec"),
    Of<&JobRecord::spec_json>("spec_json"),
    Of<&JobRecord::state>("state"),
    Of<&JobRecord::state_reason>("state_reason"),
    Of<&JobRecord::state_message>("state_message"),
    Of<&JobRecord::failure>("failure"),
    Of<&JobRecord::progress>("progress"),
    BlobOf<&JobRecord::plan>("plan"),
    Of<&JobRecord::plan_json>("plan_json"),
    Of<&JobRecord::plan_text>("plan_text"),
    Of<&JobRecord::needs>("needs"),
    Of<&JobRecord::attempt>("attempt"),
    Of<&JobRecord::requested_device>("requested_device"),
    Of<&JobRecord::device>("device"),
    Of<&JobRecord::create_micros>("create_micros"),
    Of<&JobRecord::start_micros>("start_micros"),
    Of<&JobRecord::end_micros>("end_micros"),
    Of<&JobRecord::update_micros>("update_micros"),
    Of<&JobRecord::version>("version"),
    Of<&JobRecord::created_sequence>("created_sequence"),
    Of<&JobRecord::output_directory>("output_directory"),
    Of<&JobRecord::retry_of>("retry_of"),
    Of<&JobRecord::warnings>("warnings"),
    Of<&JobRecord::labels>("labels"),
    Of<&JobRecord::priority>("priority"),
    Of<&JobRecord::max_restarts>("max_restarts"),
    Of<&JobRecord::stop_mode>("stop_mode"),
    Of<&JobRecord::ready_micros>("ready_micros"),
    Of<&JobRecord::out_of_memory_retried>("out_of_memory_retried"),
    Of<&JobRecord::swap_override>("swap_override"),
    Of<&JobRecord::held>("held"),
    Of<&JobRecord::deadline_micros>("deadline_micros"),
    Of<&JobRecord::template_name>("template_name"),
    Of<&JobRecord::from_checkpoint>("from_checkpoint"),
    Of<&JobRecord::tenant>("tenant"),
};

// What the index of waiting jobs holds.
constexpr Column<WaitingJob> kWaitingColumns[] = {
    Of<&WaitingJob::id>("id"),
    Of<&WaitingJob::state>("state"),
    Of<&WaitingJob::state_reason>("state_reason"),
    Of<&WaitingJob::requested_device>("requested_device"),
    Of<&WaitingJob::needs>("needs"),
    Of<&WaitingJob::priority>("priority"),
    Of<&WaitingJob::held>("held"),
    Of<&WaitingJob::created_sequence>("created_sequence"),
    Of<&WaitingJob::create_micros>("create_micros"),
    Of<&WaitingJob::ready_micros>("ready_micros"),
    Of<&WaitingJob::deadline_micros>("deadline_micros"),
};

absl::Status InsertLabels(Database& database, const JobRecord& job) {
  for (const auto& [key, value] : job.labels) {
    auto row = database.Prepare(
        "INSERT INTO job_labels (key, value, created_sequence, job_uid) VALUES (?,?,?,?)");
    row.BindText(key).BindText(value).Bind(job.created_sequence).BindText(job.uid);
    BLOCKSWAP_RETURN_IF_ERROR(row.Run());
  }
  return absl::OkStatus();
}

}  // namespace

const std::string& SelectJobs() {
  static const auto* sql =
      new std::string(absl::StrCat("SELECT ", ColumnNames(kColumns), " FROM jobs"));
  return *sql;
}

const std::string& SelectWaiting() {
  static const auto* sql = new std::string(
      absl::StrCat("SELECT ", ColumnNames(kWaitingColumns), " FROM jobs INDEXED BY jobs_waiting"));
  return *sql;
}

JobRecord ReadJob(const Statement& row) { return ReadRecord(kColumns, row); }

WaitingJob ReadWaiting(const Statement& row) { return ReadRecord(kWaitingColumns, row); }

absl::Status InsertJob(Database& database, const JobRecord& job) {
  auto row = database.Prepare(absl::StrCat("INSERT INTO jobs (", ColumnNames(kColumns),
                                           ") VALUES (", MoreMarks(kColumns).substr(1), ")")
                                  .c_str());
  BindRecord(kColumns, job, row);
  BLOCKSWAP_RETURN_IF_ERROR(row.Run());
  return InsertLabels(database, job);
}

absl::Status UpdateJobRow(Database& database, const JobRecord& before, const JobRecord& job) {
  std::string sql;
  std::vector<Cell> cells;
  for (const Column<JobRecord>& column : kColumns) {
    Cell cell = column.cell(job);
    if (cell == column.cell(before)) continue;
    absl::StrAppend(&sql, sql.empty() ? "UPDATE jobs SET " : ", ", column.name, "=?");
    cells.push_back(std::move(cell));
  }
  if (cells.empty()) return absl::OkStatus();
  auto row = database.Prepare(absl::StrCat(sql, " WHERE uid=?").c_str());
  for (const Cell& cell : cells) BindCell(cell, row);
  BLOCKSWAP_RETURN_IF_ERROR(row.BindText(job.uid).Run());
  if (job.labels == before.labels) return absl::OkStatus();
  auto labels = database.Prepare("DELETE FROM job_labels WHERE job_uid=?");
  BLOCKSWAP_RETURN_IF_ERROR(labels.BindText(job.uid).Run());
  return InsertLabels(database, job);
}

}  // namespace blockswap::server
