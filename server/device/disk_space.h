// SPDX-License-Identifier: Apache-2.0
// Room on the disk of a directory.
#ifndef BLOCKSWAP_SERVER_DEVICE_DISK_SPACE_H_
#define BLOCKSWAP_SERVER_DEVICE_DISK_SPACE_H_

#include <cstdint>
#include <string>

namespace blockswap::server {

struct DiskSpace {
  int64_t free_bytes = 0, total_bytes = 0;
};
// Zeros when the directory cannot be asked.
DiskSpace ReadDiskSpace(const std::string& directory);

}  // namespace blockswap::server

#endif  // BLOCKSWAP_SERVER_DEVICE_DISK_SPACE_H_
