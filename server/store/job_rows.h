// SPDX-License-Identifier: Apache-2.0
// Rows of the state store to records and back.
#ifndef BLOCKSWAP_SERVER_STORE_JOB_ROWS_H_
#define BLOCKSWAP_SERVER_STORE_JOB_ROWS_H_

#include <string>

#include "absl/status/status.h"
#include "server/jobs/job.h"
#include "server/store/database.h"

namespace blockswap::server {

// Columns in the order that ReadJob expects.
extern const char kSelectJobs[];      // "SELECT ... FROM jobs"
extern const char kSelectAttempts[];  // "SELECT ... FROM attempts"
extern const char kSelectEvents[];    // "SELECT ... FROM events"

JobRecord ReadJob(const Statement& row);
AttemptRecord ReadAttempt(const Statement& row);
EventRecord ReadEvent(const Statement& row);

absl::Status InsertJob(Database& database, const JobRecord& job);
absl::Status UpdateJobRow(Database& database, const JobRecord& job);
absl::Status PutAttempt(Database& database, const std::string& job_uid,
                        const AttemptRecord& attempt);
absl::Status PutCheckpoint(Database& database, const std::string& job_uid,
                           const CheckpointRecord& checkpoint);
absl::Status PutMetricPoint(Database& database, const std::string& job_uid,
                            const MetricPoint& point);
absl::Status InsertEvent(Database& database, const EventRecord& event);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_JOB_ROWS_H_
