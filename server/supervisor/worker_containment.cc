// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/worker_containment.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "offload/base/byte_size.h"
#include "offload/base/host_facts.h"
#include "server/base/log.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {
namespace {

int64_t OutOfMemoryKillsOnMachine() {
  std::ifstream counters("/proc/vmstat");
  std::string name;
  int64_t value = 0;
  while (counters >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return 0;
}

bool HasVariable(int64_t pid, const std::string& assignment) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/environ"), std::ios::binary);
  std::string variable;
  while (std::getline(file, variable, '\0')) {
    if (variable == assignment) return true;
  }
  return false;
}

// Kills every process with that variable once; returns how many.
int KillTagged(const std::string& assignment) {
  int killed = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    int64_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid) || pid == ::getpid()) continue;
    // The descriptor pins the process: what is read of it afterwards is its own.
    const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
    if (!process.valid() || !HasVariable(pid, assignment)) continue;
    if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0) ++killed;
  }
  return killed;
}

}  // namespace

WorkerContainment::WorkerContainment(std::string tag, std::optional<Cgroup> group)
    : tag_(std::move(tag)), group_(std::move(group)), kills_before_(OutOfMemoryKillsOnMachine()) {}

WorkerContainment::~WorkerContainment() {
  if (!group_.has_value()) return;
  const absl::Status removed = group_->Remove();
  // The next server that starts tries again.
  if (!removed.ok()) LogWarning("{}", std::string(removed.message()));
}

int WorkerContainment::KillRest() {
  if (group_.has_value()) {
    const absl::Status killed = group_->Kill();
    if (!killed.ok()) LogWarning("{}", std::string(killed.message()));
  }
  // A process that forks while it is looked for is found in the next round.
  constexpr int kRounds = 5;
  int total = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int killed = KillTagged(absl::StrCat(kAttemptVariable, "=", tag_));
    total += killed;
    if (killed == 0) break;
  }
  return total;
}

std::optional<std::string> WorkerContainment::OutOfMemory() const {
  using base::FormatByteSize;
  if (group_.has_value()) {
    const CgroupMemory memory = group_->Memory();
    if (memory.out_of_memory_kills > 0) {
      const std::string limit =
          memory.limit_bytes > 0 ? absl::StrCat("its limit is ", FormatByteSize(memory.limit_bytes))
                                 : "it has no limit of its own";
      return absl::StrCat("the kernel ended the worker for want of memory: it used up to ",
                          FormatByteSize(memory.peak_bytes), ", ", limit,
                          "; give the job a smaller memory.host_budget, or the worker more memory");
    }
  }
  const int64_t kills = OutOfMemoryKillsOnMachine() - kills_before_;
  if (kills <= 0) return std::nullopt;
  return absl::StrCat("the kernel ended ", kills,
                      " process(es) of this machine for want of memory while the worker ran, and "
                      "the worker was ended by SIGKILL that no one here sent; available now ",
                      FormatByteSize(base::ReadHostFacts().available_bytes),
                      "; give the job a smaller memory.host_budget");
}

}  // namespace blockswap::server
