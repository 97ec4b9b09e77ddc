// SPDX-License-Identifier: Apache-2.0
// A fast 64-bit checksum of weight bytes: finds corruption, promises nothing against an adversary.
#ifndef BLOCKSWAP_OFFLOAD_BASE_CHECKSUM_H_
#define BLOCKSWAP_OFFLOAD_BASE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace blockswap::base {

// Depends on every byte, their order and their number. The same on every little-endian host.
uint64_t Checksum(absl::Span<const std::byte> bytes);

// As good, and another number: the checksum of the pieces' checksums, by several threads.
uint64_t ChecksumOfPieces(absl::Span<const std::byte> bytes);

}  // namespace blockswap::base

#endif  // BLOCKSWAP_OFFLOAD_BASE_CHECKSUM_H_
