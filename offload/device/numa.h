// SPDX-License-Identifier: Apache-2.0
// Host memory on the memory node of a device: first touched there, where there is more than one.
#ifndef BLOCKSWAP_OFFLOAD_DEVICE_NUMA_H_
#define BLOCKSWAP_OFFLOAD_DEVICE_NUMA_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace blockswap::offload {

inline constexpr int kNoNode = -1;

// Memory nodes that are online; 1 where the system does not say. `sysfs` is "/sys" but in tests.
int CountMemoryNodes(const std::string& sysfs = "/sys");

// The node a PCI device ("0000:3b:00.0", either case) hangs on; kNoNode when the system does not
// say.
int NodeOfPciDevice(absl::string_view address, const std::string& sysfs = "/sys");

// The node of the core the calling thread runs on; kNoNode when unknown.
int NodeOfThisThread();

// Prefers `node` for the pages of [data, data + bytes) that are not there yet. data is page
// aligned. Does nothing for kNoNode.
absl::Status PreferNode(std::byte* data, int64_t bytes, int node);

// One line for the job's log: "host memory on node 1 of 2", "one memory node".
std::string NodeText(int node, int num_nodes);

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_DEVICE_NUMA_H_
