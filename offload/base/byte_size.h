// SPDX-License-Identifier: Apache-2.0
// Reads and prints byte counts the way people write them: "12MiB", "1.5 GiB", "4096".
#ifndef BLOCKSWAP_OFFLOAD_BASE_BYTE_SIZE_H_
#define BLOCKSWAP_OFFLOAD_BASE_BYTE_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace blockswap::base {

inline constexpr int64_t kKiB = int64_t{1} << 10;
inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

// Accepts a non-negative decimal number with an optional unit B, KiB, MiB, GiB, TiB, kB, MB, GB, TB (any case, optional
// space). InvalidArgument on anything else, a fraction of a byte is rounded down, overflow is an error.
absl::StatusOr<int64_t> ParseByteSize(absl::string_view text);

// "3.1 GiB", "12.0 MiB", "512 B": one decimal in the largest binary unit that is at least one.
std::string FormatByteSize(int64_t bytes);

}  // namespace blockswap::base

#endif  // BLOCKSWAP_OFFLOAD_BASE_BYTE_SIZE_H_
