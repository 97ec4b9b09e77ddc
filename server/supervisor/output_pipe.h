// SPDX-License-Identifier: Apache-2.0
// The pipe a worker prints into, under a name that the next server finds.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_OUTPUT_PIPE_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_OUTPUT_PIPE_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/base/unique_fd.h"
#include "server/supervisor/spawn_process.h"

namespace blockswap::server {

// Makes the FIFO `path` (0600). The end for the worker can be read, too: the worker itself keeps
// the pipe open, so printing is no error while there is no server, and what it printed meanwhile
// waits in the pipe. The other end ends when the last process that prints has.
absl::StatusOr<Pipe> MakeOutputPipe(const std::string& path);

// The reading end of a pipe that an earlier server made. NotFound; FailedPrecondition: `path` is
// something else.
absl::StatusOr<UniqueFd> OpenOutputPipe(const std::string& path);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_OUTPUT_PIPE_H_
