// SPDX-License-Identifier: Apache-2.0
#include "server/device/host_facts.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "offload/base/proc_file.h"

namespace blockswap::server {
namespace {

int64_t ReadNumber(const std::string& path) {
  int64_t value = 0;
  const auto word = base::ReadFirstWord(path);
  return word.has_value() && absl::SimpleAtoi(*word, &value) ? value : 0;
}

// Of this process in the unified hierarchy; empty in the old one.
std::string CgroupDirectory() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) == 0) return absl::StrCat("/sys/fs/cgroup", line.substr(3));
  }
  return std::string();
}

// Page cache that the kernel would give up is charged to the group but is not really used.
int64_t InactiveFileBytes(const std::string& directory) {
  std::ifstream file(absl::StrCat(directory, "/memory.stat"));
  std::string key;
  int64_t value = 0;
  while (file >> key >> value) {
    if (key == "inactive_file") return value;
  }
  return 0;
}

}  // namespace

int64_t HostMemory::available_bytes() const {
  return cgroup_limit_bytes > 0 ? std::min(host_available_bytes, cgroup_available_bytes)
                                : host_available_bytes;
}

int64_t HostMemory::limit_bytes() const {
  return cgroup_limit_bytes > 0 ? std::min(host_limit_bytes, cgroup_limit_bytes) : host_limit_bytes;
}

HostMemory ReadHostMemory() {
  HostMemory memory;
  memory.host_limit_bytes = base::ReadProcBytes("/proc/meminfo", "MemTotal").value_or(0);
  memory.host_available_bytes = base::ReadProcBytes("/proc/meminfo", "MemAvailable").value_or(0);
  const std::string cgroup = CgroupDirectory();
  if (cgroup.empty()) return memory;
  memory.cgroup_limit_bytes = ReadNumber(absl::StrCat(cgroup, "/memory.max"));
  if (memory.cgroup_limit_bytes > 0) {
    const int64_t used =
        ReadNumber(absl::StrCat(cgroup, "/memory.current")) - InactiveFileBytes(cgroup);
    memory.cgroup_available_bytes = std::max<int64_t>(0, memory.cgroup_limit_bytes - used);
  }
  return memory;
}

int64_t LockableBytes() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? INT64_MAX : static_cast<int64_t>(limit.rlim_cur);
}

DiskSpace ReadDiskSpace(const std::string& directory) {
  struct statvfs facts {};
  if (::statvfs(directory.c_str(), &facts) != 0) return {};
  const auto unit = static_cast<int64_t>(facts.f_frsize);
  return {static_cast<int64_t>(facts.f_bavail) * unit, static_cast<int64_t>(facts.f_blocks) * unit};
}

}  // namespace blockswap::server
