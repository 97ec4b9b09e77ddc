// SPDX-License-Identifier: Apache-2.0
// Starts a program with a clean environment and no descriptors but those it is given.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_SPAWN_PROCESS_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_SPAWN_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {

// "what: text of `error`"; ResourceExhausted where the system is short of something.
absl::Status SystemError(const std::string& what, int error);

// Closed in children unless given to them.
struct Pipe {
  UniqueFd read, write;
};
absl::StatusOr<Pipe> MakePipe();

struct ChildDescriptor {
  int ours = -1;
  int number = 0;  // in the child
};

struct SpawnRequest {
  std::vector<std::string> arguments;  // the first is the path of the program
  std::vector<std::string> environment;
  // Standard streams that are not named are /dev/null.
  std::vector<ChildDescriptor> descriptors;
};

// What every worker process gets: language, the one card it may see, and of our own variables those
// that are named.
std::vector<std::string> WorkerEnvironment(const std::string& visible_gpu,
                                           const std::vector<std::string>& passed);

// Own session and process group, default signals.
absl::StatusOr<pid_t> SpawnProcess(SpawnRequest request);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_SPAWN_PROCESS_H_
