// SPDX-License-Identifier: Apache-2.0
// Stays with a job until it has ended, showing what happens or nothing.
#ifndef BLOCKSWAP_CLIENT_CLI_FOLLOW_H_
#define BLOCKSWAP_CLIENT_CLI_FOLLOW_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "blockswap/v1/training.pb.h"
#include "client/cli/exit_code.h"
#include "client/cli/session.h"

namespace blockswap::cli {

// Watches `name` until it is terminal or `done` is true for an event's state, and returns the job
// as it is then. `on_event` sees every event. Errors: DeadlineExceeded at the deadline, Cancelled
// after Session::Interrupt, and what the server says; a stream that was cut is resumed, never taken
// for the end.
absl::StatusOr<v1::Job> WatchJob(Session& session, const std::string& name, absl::Time deadline,
                                 const std::function<bool(v1::JobState)>& done,
                                 const std::function<void(const v1::JobEvent&)>& on_event);

// Shows progress until the job has ended, then the result. Ctrl-C detaches and says how to go on.
ExitCode FollowJob(Session& session, const v1::Job& job);

// Waits without a word until the job has ended, then prints the result.
ExitCode AwaitJob(Session& session, const v1::Job& job);

// What Ctrl-C left behind: the job goes on.
ExitCode Detached(const Session& session, const std::string& name);

}  // namespace blockswap::cli

#endif  // BLOCKSWAP_CLIENT_CLI_FOLLOW_H_
