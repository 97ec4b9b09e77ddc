// SPDX-License-Identifier: Apache-2.0
// Work on many bytes that one core cannot do at the rate of a drive: in pieces, by several threads.
#ifndef BLOCKSWAP_OFFLOAD_BASE_PIECES_H_
#define BLOCKSWAP_OFFLOAD_BASE_PIECES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace blockswap::base {

inline constexpr int64_t kPieceBytes = int64_t{4} << 20;

// The last one may be shorter.
constexpr int64_t NumPieces(int64_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }

// Calls `work` once for each piece of the first `bytes`: its offset, a multiple of kPieceBytes, and
// its size, which is kPieceBytes but for the last. At the same time from the caller's thread and,
// when there are several, from others that end before this returns. The answer is that of the first
// piece, by offset, that failed; the others are worked on all the same.
absl::Status ForPieces(int64_t bytes,
                       absl::FunctionRef<absl::Status(int64_t offset, int64_t size)> work);

}  // namespace blockswap::base

#endif  // BLOCKSWAP_OFFLOAD_BASE_PIECES_H_
