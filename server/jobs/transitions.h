// SPDX-License-Identifier: Apache-2.0
// Which state may follow which, and the names of states, categories and reasons.
#ifndef BLOCKSWAP_SERVER_JOBS_TRANSITIONS_H_
#define BLOCKSWAP_SERVER_JOBS_TRANSITIONS_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "server/jobs/job.h"

namespace blockswap::server {

bool CanTransition(JobState from, JobState to);
bool IsTerminal(JobState state);
// A worker process belongs to the job.
bool HasWorker(JobState state);
// Waits for a device: QUEUED, or RECOVERING between attempts.
bool IsWaiting(JobState state);

// What a client can ask of a job in that state: "cancel, suspend".
absl::string_view AllowedVerbs(JobState state);

absl::string_view StateName(JobState state);                 // "RUNNING"
std::optional<JobState> ParseState(absl::string_view name);  // any case
absl::string_view CategoryName(FailureCategory category);    // "WORKER_CRASH"; "NONE"
FailureCategory ParseCategory(absl::string_view name);       // kNone when unknown

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_JOBS_TRANSITIONS_H_
