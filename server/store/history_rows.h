// SPDX-License-Identifier: Apache-2.0
// Rows of what belongs to a job: attempts, checkpoints, metric points and events.
#ifndef BLOCKSWAP_SERVER_STORE_HISTORY_ROWS_H_
#define BLOCKSWAP_SERVER_STORE_HISTORY_ROWS_H_

#include <string>

#include "absl/status/status.h"
#include "server/jobs/job.h"
#include "server/store/database.h"

namespace blockswap::server {

// "SELECT ... FROM" the table, with the columns that the Read function of the same kind expects.
std::string SelectAttempts();
std::string SelectCheckpoints();
std::string SelectPoints();
std::string SelectEvents();

AttemptRecord ReadAttempt(const Statement& row);
CheckpointRecord ReadCheckpoint(const Statement& row);
MetricPoint ReadPoint(const Statement& row);
EventRecord ReadEvent(const Statement& row);

absl::Status PutAttempt(Database& database, const std::string& job_uid,
                        const AttemptRecord& attempt);
absl::Status PutCheckpoint(Database& database, const std::string& job_uid,
                           const CheckpointRecord& checkpoint);
absl::Status PutMetricPoint(Database& database, const std::string& job_uid,
                            const MetricPoint& point);
absl::Status InsertEvent(Database& database, const EventRecord& event);
// Everything of a job except what it was deleted by: its DELETED event stays for watchers.
absl::Status DeleteHistory(Database& database, const JobRecord& job);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_HISTORY_ROWS_H_
