// SPDX-License-Identifier: Apache-2.0
// A control group (version 2) for each worker, where the system lets us make one.
#ifndef BLOCKSWAP_SERVER_SUPERVISOR_CGROUP_H_
#define BLOCKSWAP_SERVER_SUPERVISOR_CGROUP_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace blockswap::server {

struct CgroupLimits {
  int64_t memory_bytes = 0;  // 0: none
  int64_t processes = 4096;  // threads count, too
};

// What the kernel counted for a group.
struct CgroupMemory {
  int64_t out_of_memory_kills = 0;
  int64_t limit_bytes = 0, peak_bytes = 0;  // 0: none, or not known
};

// One worker's group. Plain value: the directory's name. Thread safety: as the kernel's.
class Cgroup final {
 public:
  explicit Cgroup(std::string directory) : directory_(std::move(directory)) {}

  absl::Status Add(pid_t pid) const;
  // SIGKILL to every process in it, whatever it has become.
  absl::Status Kill() const;
  CgroupMemory Memory() const;
  // FailedPrecondition while a process is in it.
  absl::Status Remove() const;
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
};

// The group below which those of the workers are. Thread safety: safe.
class CgroupRoot final {
 public:
  // Below the server's own group; beside it when that is called "server" (systemd's
  // DelegateSubgroup=), since a group that limits memory may hold no process itself. Unavailable
  // says what the system does not offer.
  // `owner` tells the groups of one server from those of another in the same place.
  static absl::StatusOr<CgroupRoot> Detect(const std::string& owner);
  // `directory` is a group that we may change.
  CgroupRoot(std::string directory, const std::string& owner);

  bool limits_memory() const { return limits_memory_; }
  bool limits_processes() const { return limits_processes_; }
  // Limits that the system does not offer are left out.
  absl::StatusOr<Cgroup> Make(const std::string& name, const CgroupLimits& limits) const;
  std::optional<Cgroup> Find(const std::string& name) const;
  std::vector<Cgroup> List() const;  // those that Make made, by this server or one before
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_, prefix_;
  bool limits_memory_ = false, limits_processes_ = false;
};

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_SUPERVISOR_CGROUP_H_
