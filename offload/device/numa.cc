// SPDX-License-Identifier: Apache-2.0
#include "offload/device/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "offload/base/proc_file.h"
#include "offload/device/host_memory.h"

namespace blockswap::offload {
namespace {

constexpr int kMaxNodes = 1024;  // as large as any kernel is built for

}  // namespace

int CountMemoryNodes(const std::string& sysfs) {
  // "0-1,4": ranges and single nodes.
  const std::string online =
      base::ReadFirstWord(absl::StrCat(sysfs, "/devices/system/node/online")).value_or("0");
  int count = 0;
  for (const absl::string_view range : absl::StrSplit(online, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last)) return 1;
    count += last - first + 1;
  }
  return count;
}

int NodeOfPciDevice(absl::string_view address, const std::string& sysfs) {
  const std::string path =
      absl::StrCat(sysfs, "/bus/pci/devices/", absl::AsciiStrToLower(address), "/numa_node");
  int node = kNoNode;
  if (!absl::SimpleAtoi(base::ReadFirstWord(path).value_or(""), &node)) return kNoNode;
  return node < 0 ? kNoNode : node;
}

int NodeOfThisThread() {
  unsigned int core = 0, node = 0;
  return syscall(SYS_getcpu, &core, &node, nullptr) == 0 ? static_cast<int>(node) : kNoNode;
}

absl::Status PreferNode(std::byte* data, int64_t bytes, int node) {
  if (node == kNoNode) return absl::OkStatus();
  if (node < 0 || node >= kMaxNodes) {
    return absl::InvalidArgumentError(absl::StrCat("no memory node ", node));
  }
  constexpr int kBits = 8 * sizeof(unsigned long);  // NOLINT: the system call's own type
  std::array<unsigned long, kMaxNodes / kBits> mask{};
  mask[static_cast<size_t>(node / kBits)] = 1UL << (node % kBits);
  // Preferred, not bound: a full node must not end the job.
  if (syscall(SYS_mbind, data, static_cast<size_t>(PageCeil(bytes)), MPOL_PREFERRED, mask.data(),
              static_cast<unsigned long>(kMaxNodes), 0U) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("host memory cannot be placed on memory node ", node,
                                             ": ", std::strerror(errno)));
}

std::string NodeText(int node, int num_nodes) {
  if (num_nodes <= 1) return "one memory node: host memory needs no placing";
  if (node == kNoNode) {
    return absl::StrCat("host memory is not placed: ", num_nodes,
                        " memory nodes, the device's is unknown");
  }
  return absl::StrCat("host memory on node ", node, " of ", num_nodes);
}

}  // namespace blockswap::offload
