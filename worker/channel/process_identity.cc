// SPDX-License-Identifier: Apache-2.0
#include "worker/channel/process_identity.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "offload/base/proc_file.h"

namespace blockswap::worker {
namespace {

constexpr size_t kStartTimeField = 22;      // counted from 1, as in proc(5)
constexpr size_t kFirstFieldAfterName = 3;  // the name in field 2 may hold spaces and brackets

int64_t StartTime() {
  std::ifstream file("/proc/self/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string stat = text.str();
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipEmpty());
  const size_t index = kStartTimeField - kFirstFieldAfterName;
  int64_t start_time = 0;
  if (fields.size() <= index || !absl::SimpleAtoi(fields[index], &start_time)) return 0;
  return start_time;
}

}  // namespace

ProcessIdentity ThisProcess() {
  return {getpid(), StartTime(),
          base::ReadFirstWord("/proc/sys/kernel/random/boot_id").value_or("")};
}

}  // namespace blockswap::worker
