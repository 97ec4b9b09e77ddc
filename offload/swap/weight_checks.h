// SPDX-License-Identifier: Apache-2.0
// Checksums of block weights as they were loaded, to tell wherever they are whether they still are.
#ifndef BLOCKSWAP_OFFLOAD_SWAP_WEIGHT_CHECKS_H_
#define BLOCKSWAP_OFFLOAD_SWAP_WEIGHT_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "offload/plan/block_profile.h"

namespace blockswap::offload {

// Thread safety: one thread. Errors: DataLoss that names the block, where it was read, the checksum
// expected and the one found.
class WeightChecks {
 public:
  // `blocks` outlives the checks.
  explicit WeightChecks(const std::vector<BlockProfile>* blocks)
      : blocks_(blocks), sums_(blocks->size()) {}

  // The block's weights are right as they are here: its packed bytes.
  void Record(int block, absl::Span<const std::byte> packed);

  absl::Status CheckBlock(int block, absl::Span<const std::byte> packed,
                          const std::string& where) const;
  absl::Status CheckLayer(int block, int layer, absl::Span<const std::byte> bytes,
                          const std::string& where) const;
  absl::Status CheckTensor(int block, int tensor, absl::Span<const std::byte> bytes,
                           const std::string& where) const;

 private:
  struct Sums {
    uint64_t block = 0;
    std::vector<uint64_t> layers;
    std::vector<uint64_t> tensors;
  };

  const std::vector<BlockProfile>* const blocks_;
  std::vector<Sums> sums_;
};

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_SWAP_WEIGHT_CHECKS_H_
