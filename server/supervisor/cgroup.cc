// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {
namespace {

constexpr char kPrefix[] = "blockswap-";
constexpr char kServerGroup[] = "/server";

absl::Status Put(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid() ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::UnavailableError(
        absl::StrCat("cannot write \"", text, "\" to ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int64_t ReadNumber(const std::string& path) {
  int64_t number = 0;
  // "max" means no limit.
  return absl::SimpleAtoi(Read(path), &number) ? number : 0;
}

// Where version 2 is mounted; empty: nowhere.
std::string MountPoint() {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  while (std::getline(mounts, line)) {
    const size_t separator = line.find(" - ");
    if (separator == std::string::npos || !absl::StartsWith(line.substr(separator), " - cgroup2 "))
      continue;
    std::istringstream fields(line);
    std::string id, parent, device, root, point;
    fields >> id >> parent >> device >> root >> point;
    return point;
  }
  return "";
}

// Of this process, as a path below the mount point; empty: in none.
std::string OwnGroup() {
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "0::")) return std::string(rest);
  }
  return "";
}

bool HasWord(const std::string& text, const char* word) {
  std::istringstream words(text);
  std::string each;
  while (words >> each) {
    if (each == word) return true;
  }
  return false;
}

}  // namespace

absl::Status Cgroup::Add(pid_t pid) const {
  return Put(directory_ + "/cgroup.procs", absl::StrCat(pid));
}

absl::Status Cgroup::Kill() const { return Put(directory_ + "/cgroup.kill", "1"); }

CgroupMemory Cgroup::Memory() const {
  CgroupMemory memory;
  std::istringstream events(Read(directory_ + "/memory.events"));
  std::string name;
  int64_t count = 0;
  while (events >> name >> count) {
    if (name == "oom_kill") memory.out_of_memory_kills = count;
  }
  memory.limit_bytes = ReadNumber(directory_ + "/memory.max");
  memory.peak_bytes = ReadNumber(directory_ + "/memory.peak");
  return memory;
}

absl::Status Cgroup::Remove() const {
  if (::rmdir(directory_.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot remove ", directory_, ": ", std::strerror(errno)));
}

absl::StatusOr<CgroupRoot> CgroupRoot::Detect(const std::string& owner) {
  const std::string mount = MountPoint();
  if (mount.empty()) return absl::UnavailableError("control groups (version 2) are not mounted");
  std::string group = OwnGroup();
  if (group.empty()) return absl::UnavailableError("the server is in no control group (version 2)");
  if (absl::EndsWith(group, kServerGroup)) group.resize(group.size() - strlen(kServerGroup));
  const std::string directory = group == "/" ? mount : absl::StrCat(mount, group);
  // A trial says more than permissions do.
  const std::string trial = absl::StrCat(directory, "/", kPrefix, "trial-", ::getpid());
  if (::mkdir(trial.c_str(), 0755) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot make a control group in ", directory, ": ",
                                               std::strerror(errno),
                                               "; systemd needs Delegate=yes for it"));
  }
  const bool kills = ::access((trial + "/cgroup.kill").c_str(), W_OK) == 0;
  ::rmdir(trial.c_str());
  if (!kills) return absl::UnavailableError("this kernel has no cgroup.kill (before 5.14)");
  return CgroupRoot(directory, owner);
}

CgroupRoot::CgroupRoot(std::string directory, const std::string& owner)
    : directory_(std::move(directory)), prefix_(absl::StrCat(kPrefix, owner, "-")) {
  const std::string offered = Read(directory_ + "/cgroup.controllers");
  const std::string control = directory_ + "/cgroup.subtree_control";
  // Refused while a process is in the group itself; then there are groups, but no limits.
  if (HasWord(offered, "memory")) Put(control, "+memory").IgnoreError();
  if (HasWord(offered, "pids")) Put(control, "+pids").IgnoreError();
  const std::string enabled = Read(control);
  limits_memory_ = HasWord(enabled, "memory");
  limits_processes_ = HasWord(enabled, "pids");
}

absl::StatusOr<Cgroup> CgroupRoot::Make(const std::string& name, const CgroupLimits& limits) const {
  Cgroup group(absl::StrCat(directory_, "/", prefix_, name));
  if (::mkdir(group.directory().c_str(), 0755) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat("cannot make the control group ", group.directory(),
                                               ": ", std::strerror(errno)));
  }
  absl::Status limited;
  if (limits_memory_ && limits.memory_bytes > 0) {
    limited.Update(Put(group.directory() + "/memory.max", absl::StrCat(limits.memory_bytes)));
    // A worker that dies halfway leaves memory and locks behind in its children.
    limited.Update(Put(group.directory() + "/memory.oom.group", "1"));
  }
  if (limits_processes_ && limits.processes > 0) {
    limited.Update(Put(group.directory() + "/pids.max", absl::StrCat(limits.processes)));
  }
  if (limited.ok()) return group;
  group.Remove().IgnoreError();  // the limit's failure is what counts
  return limited;
}

std::optional<Cgroup> CgroupRoot::Find(const std::string& name) const {
  Cgroup group(absl::StrCat(directory_, "/", prefix_, name));
  struct stat facts {};
  if (::stat(group.directory().c_str(), &facts) != 0) return std::nullopt;
  return group;
}

std::vector<Cgroup> CgroupRoot::List() const {
  std::vector<Cgroup> groups;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, ignored)) {
    if (absl::StartsWith(entry.path().filename().string(), prefix_)) {
      groups.emplace_back(entry.path().string());
    }
  }
  return groups;
}

}  // namespace blockswap::server
