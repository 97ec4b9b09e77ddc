// SPDX-License-Identifier: Apache-2.0
// What the kernel lets this process take of the host: memory, the control group's limit, page
// locks.
#ifndef BLOCKSWAP_OFFLOAD_BASE_HOST_FACTS_H_
#define BLOCKSWAP_OFFLOAD_BASE_HOST_FACTS_H_

#include <cstdint>
#include <limits>
#include <string>

namespace blockswap::base {

inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// At most this share of the available memory is page-locked: locked memory cannot be swapped, and a
// host that has locked it all freezes instead of failing.
inline constexpr double kLockableShare = 0.8;

struct HostFacts {
  int64_t host_total_bytes = 0, host_available_bytes = 0;  // of the machine
  // memory.max of this process's group or a parent, and what it leaves; kNoLimit: none.
  int64_t control_group_limit = kNoLimit, control_group_available = kNoLimit;
  int64_t available_bytes = 0;          // the smaller of both
  int64_t lock_limit_bytes = kNoLimit;  // RLIMIT_MEMLOCK soft limit; kNoLimit with CAP_IPC_LOCK
  int64_t locked_bytes = 0;             // locked now (VmLck, VmPin)
  int64_t lockable_bytes = 0;  // what is left of the limit, at most kLockableShare of the available
};

// Where the kernel's files are; tests give a directory of their own.
struct HostFactsPaths {
  std::string proc = "/proc";
  std::string control_groups = "/sys/fs/cgroup";
};

HostFacts ReadHostFacts(const HostFactsPaths& paths = {});

}  // namespace blockswap::base

#endif  // BLOCKSWAP_OFFLOAD_BASE_HOST_FACTS_H_
