// SPDX-License-Identifier: Apache-2.0
// What this process may take of the host: available memory, control-group limit, page-lock limit.
#ifndef BLOCKSWAP_OFFLOAD_HOST_HOST_BUDGET_H_
#define BLOCKSWAP_OFFLOAD_HOST_HOST_BUDGET_H_

#include <cstdint>
#include <limits>
#include <string>

namespace blockswap::offload {

inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

struct HostFacts {
  int64_t available_bytes = 0;  // the smaller of MemAvailable and what the control group leaves
  int64_t control_group_limit =
      kNoLimit;  // memory.max of this process's group or a parent; kNoLimit: none
  int64_t lock_limit_bytes = kNoLimit;  // RLIMIT_MEMLOCK soft limit; kNoLimit with CAP_IPC_LOCK
  int64_t locked_bytes = 0;             // locked now (VmLck)
  int64_t lockable_bytes = 0;           // what is left of the limit, never more than available
};

// Where the kernel's files are; tests give a directory of their own.
struct HostFactsPaths {
  std::string proc = "/proc";
  std::string control_groups = "/sys/fs/cgroup";
};

HostFacts ReadHostFacts(const HostFactsPaths& paths = {});

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_HOST_HOST_BUDGET_H_
