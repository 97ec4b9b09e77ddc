// SPDX-License-Identifier: Apache-2.0
// Rows of the table of jobs to records and back.
#ifndef BLOCKSWAP_SERVER_STORE_JOB_ROWS_H_
#define BLOCKSWAP_SERVER_STORE_JOB_ROWS_H_

#include <string>

#include "absl/status/status.h"
#include "server/jobs/job.h"
#include "server/store/database.h"

namespace blockswap::server {

// "SELECT ... FROM jobs" with the columns in the order that ReadJob expects.
const std::string& SelectJobs();
JobRecord ReadJob(const Statement& row);

absl::Status InsertJob(Database& database, const JobRecord& job);
// Writes only the columns in which the two differ: a step of training leaves the indices over
// state, name and priority alone.
absl::Status UpdateJobRow(Database& database, const JobRecord& before, const JobRecord& job);

// "SELECT ... FROM jobs" that the index of waiting jobs answers alone, in the order of ReadWaiting.
const std::string& SelectWaiting();
WaitingJob ReadWaiting(const Statement& row);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_STORE_JOB_ROWS_H_
