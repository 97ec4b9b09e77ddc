// SPDX-License-Identifier: Apache-2.0
// The file in memory through which the jobs of a server share block weights: made here, laid out
// and filled by workers.
#ifndef BLOCKSWAP_OFFLOAD_BASE_MASTER_FILE_H_
#define BLOCKSWAP_OFFLOAD_BASE_MASTER_FILE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace blockswap::base {

inline constexpr uint32_t kMasterFileVersion = 2;

// The first bytes of the file. See Note [Shared masters].
struct MasterFileStart {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t num_blocks = 0;  // 0: not laid out
  std::array<char, 64> key{};

  static MasterFileStart For(const std::string& key);
};

// What follows the start: how the blocks are laid out, then one entry a block.
struct MasterFileControl {
  MasterFileStart start;  // num_blocks is written last
  uint64_t layout = 0;    // checksum of the blocks' sizes
};

enum MasterBlockState : uint32_t { kMasterEmpty = 0, kMasterReady = 1, kMasterSpoilt = 2 };
struct MasterFileBlock {
  // Of MasterBlockState, atomic: release after the checksum and the bytes, acquire before them.
  uint32_t state = kMasterEmpty;
  int32_t filler = 0;  // process that filled it, for messages
  uint64_t checksum = 0;
};

// A sealable memory file for weights with this key (at most 64 characters); the caller closes it.
// ResourceExhausted, Unavailable.
absl::StatusOr<int> CreateMasterFile(const std::string& key);

// What the file takes of memory now.
int64_t MasterFileBytes(int fd);

// Which blocks' bytes are there; empty when no worker has laid the file out.
std::vector<bool> ReadyMasterBlocks(int fd);

}  // namespace blockswap::base

#endif  // BLOCKSWAP_OFFLOAD_BASE_MASTER_FILE_H_
