// SPDX-License-Identifier: Apache-2.0
#include "server/device/disk_space.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <filesystem>

namespace blockswap::server {

DiskSpace ReadDiskSpace(const std::string& directory) {
  std::filesystem::path path(directory);
  struct statvfs facts {};
  struct stat place {};
  while (::statvfs(path.c_str(), &facts) != 0) {
    if (errno != ENOENT || !path.has_relative_path()) return {};
    path = path.parent_path();
  }
  const auto unit = static_cast<int64_t>(facts.f_frsize);
  DiskSpace space;
  space.free_bytes = static_cast<int64_t>(facts.f_bavail) * unit;
  space.total_bytes = static_cast<int64_t>(facts.f_blocks) * unit;
  if (::stat(path.c_str(), &place) == 0) space.volume = place.st_dev;
  return space;
}

}  // namespace blockswap::server
