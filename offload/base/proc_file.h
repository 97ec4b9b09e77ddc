// SPDX-License-Identifier: Apache-2.0
// Reads "Key:  123 kB" lines of the kernel's memory files.
#ifndef BLOCKSWAP_OFFLOAD_BASE_PROC_FILE_H_
#define BLOCKSWAP_OFFLOAD_BASE_PROC_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace blockswap::base {

// Bytes behind `key` ("MemAvailable") in `path` ("/proc/meminfo"); nothing when either is absent.
std::optional<int64_t> ReadProcBytes(const std::string& path, absl::string_view key);

// The first whitespace-free word of a one-line file such as a control-group limit; nothing when it
// cannot be read.
std::optional<std::string> ReadFirstWord(const std::string& path);

}  // namespace blockswap::base

#endif  // BLOCKSWAP_OFFLOAD_BASE_PROC_FILE_H_
