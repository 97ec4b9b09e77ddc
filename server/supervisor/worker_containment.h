// SPDX-License-Identifier: Apache-2.0
// Finds and ends what a worker started, however it tried to get away, and says whether the kernel
// ended the worker for want of memory.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_WORKER_CONTAINMENT_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_WORKER_CONTAINMENT_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "server/supervisor/cgroup.h"

namespace blockswap::server {

// Name of the variable that every process of a worker inherits.
inline constexpr char kAttemptVariable[] = "BLOCKSWAP_ATTEMPT";

// One worker's. Owns: its control group, where there is one; removed with this. Without one a
// descendant is known by a variable in its environment, which it may clear: then only its process
// group gives it away. Thread safety: none.
class WorkerContainment final {
 public:
  // `tag` is the value of the variable and unlike any other worker's.
  WorkerContainment(std::string tag, std::optional<Cgroup> group);
  ~WorkerContainment();
  WorkerContainment(const WorkerContainment&) = delete;
  WorkerContainment& operator=(const WorkerContainment&) = delete;

  // Of a worker that has ended; how many processes that were not in its process group were found.
  int KillRest();
  // One sentence with the numbers, if the kernel's count of processes it ended for want of memory
  // says so.
  std::optional<std::string> OutOfMemory() const;

 private:
  const std::string tag_;
  const std::optional<Cgroup> group_;
  const int64_t kills_before_;  // on the machine
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_WORKER_CONTAINMENT_H_
