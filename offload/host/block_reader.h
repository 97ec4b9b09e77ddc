// SPDX-License-Identifier: Apache-2.0
// Where block weights come from: the checkpoint, read block by block into packed form.
#ifndef BLOCKSWAP_OFFLOAD_HOST_BLOCK_READER_H_
#define BLOCKSWAP_OFFLOAD_HOST_BLOCK_READER_H_

#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace blockswap::offload {

// Fills `destination` (exactly the packed bytes of the block, padding zeroed) with the block's
// weights. Gives the same bytes each time or an error. Blocks of the file tier are read again at
// each use, on the staging thread.
using BlockReader = std::function<absl::Status(int block, absl::Span<std::byte> destination)>;

// Says that `block` will be read soon. Never blocks; may be null.
using ReadAheadHint = std::function<void(int block)>;

}  // namespace blockswap::offload

#endif  // BLOCKSWAP_OFFLOAD_HOST_BLOCK_READER_H_
