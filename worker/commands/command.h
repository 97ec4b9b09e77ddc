// SPDX-License-Identifier: Apache-2.0
// What the worker's commands share: how a job is found and opened, how failures are printed, how a
// process ends.
#ifndef BLOCKSWAP_WORKER_COMMANDS_COMMAND_H_
#define BLOCKSWAP_WORKER_COMMANDS_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/channel/reporter.h"
#include "worker/config/job_inspection.h"

namespace blockswap::worker {

inline constexpr int kUsageExit = 2;  // the command line itself is wrong

// Opens what a read spec names. All violations, of the spec and of the files, are in one
// InvalidArgument status, a line each.
absl::StatusOr<JobInspection> OpenJob(absl::StatusOr<SpecResult> spec);

// "blockswap-worker: <first line>" and, below it, one indented line for each violation, on standard
// error.
void PrintFailure(const std::string& message);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_COMMANDS_COMMAND_H_
