// SPDX-License-Identifier: Apache-2.0
// What the host has to give: memory that may be used, memory that may be locked, room on a disk.
#ifndef BLOCKSWAP_SERVER_DEVICE_HOST_FACTS_H_
#define BLOCKSWAP_SERVER_DEVICE_HOST_FACTS_H_

#include <cstdint>
#include <string>

namespace blockswap::server {

struct HostMemory {
  int64_t host_limit_bytes = 0, host_available_bytes = 0;      // of the machine
  int64_t cgroup_limit_bytes = 0, cgroup_available_bytes = 0;  // 0: no limit
  int64_t available_bytes() const;
  int64_t limit_bytes() const;
};
HostMemory ReadHostMemory();

// RLIMIT_MEMLOCK; INT64_MAX where there is none.
int64_t LockableBytes();

struct DiskSpace {
  int64_t free_bytes = 0, total_bytes = 0;
};
// Zeros when the directory cannot be asked.
DiskSpace ReadDiskSpace(const std::string& directory);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_HOST_FACTS_H_
