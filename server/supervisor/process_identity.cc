// SPDX-License-Identifier: Apache-2.0
#include "server/supervisor/process_identity.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "offload/base/proc_file.h"
#include "server/base/unique_fd.h"

namespace blockswap::server {

int64_t ProcessStartTime(int64_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  // The command's name is in parentheses and may hold spaces and parentheses itself.
  const size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) return 0;
  std::istringstream fields(text.substr(after_name + 1));
  std::string skipped;
  int64_t start_time = 0;
  // Field 22 of the line; the first after the name is field 3.
  for (int field = 3; field < 22; ++field) fields >> skipped;
  return fields >> start_time ? start_time : 0;
}

std::string BootId() { return base::ReadFirstWord("/proc/sys/kernel/random/boot_id").value_or(""); }

bool IsInSession(int64_t pid, int64_t start_time, const std::string& boot_id, int64_t leader) {
  return pid > 1 && start_time != 0 && ProcessStartTime(pid) == start_time && boot_id == BootId() &&
         ::getsid(static_cast<pid_t>(pid)) == static_cast<pid_t>(leader);
}

OrphanFate KillOrphan(int64_t pid, int64_t start_time, const std::string& boot_id,
                      std::chrono::milliseconds patience) {
  if (pid <= 1 || start_time == 0 || boot_id != BootId()) return OrphanFate::kWasGone;
  // The descriptor pins the process: checked after it was opened, the identity cannot change any
  // more.
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
  if (!process.valid() || ProcessStartTime(pid) != start_time) return OrphanFate::kWasGone;
  ::kill(-static_cast<pid_t>(pid), SIGKILL);
  ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  pollfd waiting{process.get(), POLLIN, 0};
  const int ready = ::poll(&waiting, 1, static_cast<int>(patience.count()));
  return ready == 1 ? OrphanFate::kKilled : OrphanFate::kStillThere;
}

}  // namespace blockswap::server
