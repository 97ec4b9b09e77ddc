// SPDX-License-Identifier: Apache-2.0
#include "server/device/disk_space.h"

#include <sys/statvfs.h>

namespace blockswap::server {

DiskSpace ReadDiskSpace(const std::string& directory) {
  struct statvfs facts {};
  if (::statvfs(directory.c_str(), &facts) != 0) return {};
  const auto unit = static_cast<int64_t>(facts.f_frsize);
  return {static_cast<int64_t>(facts.f_bavail) * unit, static_cast<int64_t>(facts.f_blocks) * unit};
}

}  // namespace blockswap::server
