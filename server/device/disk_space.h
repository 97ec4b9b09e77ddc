// SPDX-License-Identifier: Apache-2.0
// Room on the disk where a directory is, or will be.
#ifndef BLOCKSWAP_SERVER_DEVICE_DISK_SPACE_H_
#define BLOCKSWAP_SERVER_DEVICE_DISK_SPACE_H_

#include <cstdint>
#include <string>

namespace blockswap::server {

struct DiskSpace {
  int64_t free_bytes = 0, total_bytes = 0;
  uint64_t volume = 0;  // the same for directories on one disk
};
// Of the nearest parent that exists, when the directory does not. Zeros when it cannot be asked.
DiskSpace ReadDiskSpace(const std::string& directory);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_DISK_SPACE_H_
