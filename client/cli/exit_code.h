// SPDX-License-Identifier: Apache-2.0
// The exit codes of `blockswap`, which scripts rely on.
#ifndef BLOCKSWAP_CLIENT_CLI_EXIT_CODE_H_
#define BLOCKSWAP_CLIENT_CLI_EXIT_CODE_H_

#include "absl/status/status.h"
#include "blockswap/v1/event.pb.h"

namespace blockswap::cli {

enum ExitCode {
  kOk = 0,
  kError = 1,  // an invalid job file, a bug, anything without a code of its own
  kUsage = 2,  // the command line
  kJobFailed = 3,
  kJobCancelled = 4,
  kStillRunning = 5,  // the time given for waiting is over, or the job waits for a person
  kNotFound = 6,
  kUnavailable = 7,  // no server, a full queue, or a connection that was cut for good
  kDenied = 8,
  kConflict = 9,  // the job's state or another job stands against it
  kWillNotFit = 10,
  kInterrupted = 130,
};

ExitCode ExitCodeOf(const absl::Status& status);
// Of follow and wait: how the job ended, or kStillRunning.
ExitCode ExitCodeOf(v1::JobState state);

bool IsTerminal(v1::JobState state);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_EXIT_CODE_H_
