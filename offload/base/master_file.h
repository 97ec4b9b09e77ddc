// SPDX-License-Identifier: Apache-2.0
// The file in memory through which the jobs of a server share block weights: made here, laid out
// and filled by workers.
#ifndef BLOCKSWAP_OFFLOAD_BASE_MASTER_FILE_H_
#define BLOCKSWAP_OFFLOAD_BASE_MASTER_FILE_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace blockswap::base {

inline constexpr uint32_t kMasterFileVersion = 1;

// The first bytes of the file. See Note [Shared masters].
struct MasterFileStart {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t num_blocks = 0;  // 0: not laid out
  std::array<char, 64> key{};

  static MasterFileStart For(const std::string& key);
};

// A sealable memory file for weights with this key (at most 64 characters); the caller closes it.
// ResourceExhausted, Unavailable.
absl::StatusOr<int> CreateMasterFile(const std::string& key);

// What the file takes of memory now.
int64_t MasterFileBytes(int fd);

}  // namespace blockswap::base

#endif  // BLOCKSWAP_OFFLOAD_BASE_MASTER_FILE_H_
