// SPDX-License-Identifier: Apache-2.0
#include "offload/base/host_facts.h"

#include <linux/capability.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "offload/base/proc_file.h"

namespace blockswap::base {
namespace {

// The group's path below the unified hierarchy: the line "0::/path" of /proc/self/cgroup. Empty:
// the root group.
std::string UnifiedGroup(const std::string& proc) {
  std::ifstream file(absl::StrCat(proc, "/self/cgroup"));
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, 3, "0::") == 0) return line.substr(3) == "/" ? "" : line.substr(3);
  }
  return "";
}

int64_t ReadLimit(const std::string& path) {
  const std::string word = ReadFirstWord(path).value_or("max");
  int64_t bytes = 0;
  return absl::SimpleAtoi(word, &bytes) ? bytes : kNoLimit;
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

// The tightest group on the way to the root decides, with what it has left.
void ReadControlGroups(const HostFactsPaths& paths, HostFacts& facts) {
  std::string group = UnifiedGroup(paths.proc);
  while (true) {
    const std::string directory = absl::StrCat(paths.control_groups, group);
    const int64_t limit = ReadLimit(absl::StrCat(directory, "/memory.max"));
    if (limit != kNoLimit) {
      const int64_t charged = ReadLimit(absl::StrCat(directory, "/memory.current"));
      const int64_t used = charged == kNoLimit ? 0 : charged - InactiveFileBytes(directory);
      facts.control_group_limit = std::min(facts.control_group_limit, limit);
      facts.control_group_available =
          std::min(facts.control_group_available, std::clamp<int64_t>(limit - used, 0, limit));
    }
    if (group.empty()) return;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

bool HasLockCapability(const std::string& proc) {
  std::ifstream file(absl::StrCat(proc, "/self/status"));
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, 7, "CapEff:") != 0) continue;
    uint64_t capabilities = 0;
    if (!absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line.substr(7)), &capabilities))
      return false;
    return (capabilities >> CAP_IPC_LOCK & 1) != 0;
  }
  return false;
}

}  // namespace

HostFacts ReadHostFacts(const HostFactsPaths& paths) {
  HostFacts facts;
  const std::string meminfo = absl::StrCat(paths.proc, "/meminfo");
  const std::string status = absl::StrCat(paths.proc, "/self/status");
  facts.host_total_bytes = ReadProcBytes(meminfo, "MemTotal").value_or(0);
  facts.host_available_bytes = ReadProcBytes(meminfo, "MemAvailable").value_or(0);
  ReadControlGroups(paths, facts);
  facts.available_bytes = std::min(facts.host_available_bytes, facts.control_group_available);
  facts.locked_bytes =
      ReadProcBytes(status, "VmLck").value_or(0) + ReadProcBytes(status, "VmPin").value_or(0);
  rlimit limit{};
  if (!HasLockCapability(paths.proc) && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
      limit.rlim_cur != RLIM_INFINITY) {
    facts.lock_limit_bytes = static_cast<int64_t>(limit.rlim_cur);
  }
  facts.lockable_bytes =
      static_cast<int64_t>(static_cast<double>(facts.available_bytes) * kLockableShare);
  if (facts.lock_limit_bytes != kNoLimit) {
    const int64_t left = std::max<int64_t>(0, facts.lock_limit_bytes - facts.locked_bytes);
    facts.lockable_bytes = std::min(facts.lockable_bytes, left);
  }
  return facts;
}

}  // namespace blockswap::base
