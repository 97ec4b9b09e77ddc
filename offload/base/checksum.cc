// SPDX-License-Identifier: Apache-2.0
#include "offload/base/checksum.h"

#include <array>
#include <cstring>
#include <vector>

#include "offload/base/pieces.h"

namespace blockswap::base {
namespace {

constexpr int kLanes = 4;  // independent chains, so that multiplications overlap
constexpr uint64_t kOdd = 0xd6e8feb86659fd93;  // odd: multiplying by it loses nothing

// Every input bit reaches every output bit.
uint64_t Mix(uint64_t value) {
  value ^= value >> 32;
  value *= kOdd;
  value ^= value >> 29;
  value *= kOdd;
  return value ^ value >> 32;
}

uint64_t Absorb(uint64_t lane, uint64_t word) {
  lane = (lane ^ word) * kOdd;
  return lane << 23 | lane >> 41;
}

uint64_t LoadWord(const std::byte* data, size_t bytes) {
  uint64_t word = 0;
  std::memcpy(&word, data, bytes);
  return word;
}

}  // namespace

uint64_t Checksum(absl::Span<const std::byte> bytes) {
  std::array<uint64_t, kLanes> lanes = {1, 2, 3, 4};
  constexpr size_t kStride = kLanes * sizeof(uint64_t);
  size_t offset = 0;
  for (; offset + kStride <= bytes.size(); offset += kStride) {
    for (size_t i = 0; i < kLanes; ++i) {
      lanes[i] = Absorb(lanes[i], LoadWord(bytes.data() + offset + i * 8, 8));
    }
  }
  for (size_t i = 0; offset < bytes.size(); ++i, offset += 8) {
    const size_t rest = bytes.size() - offset;
    lanes[i] = Absorb(lanes[i], LoadWord(bytes.data() + offset, rest < 8 ? rest : 8));
  }
  uint64_t sum = Mix(bytes.size() + 1);
  for (const uint64_t lane : lanes) sum = Mix(sum ^ lane);
  return sum;
}

uint64_t ChecksumOfPieces(absl::Span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  std::vector<uint64_t> sums(static_cast<size_t>(NumPieces(size)));
  ForPieces(size, [bytes, &sums](int64_t offset, int64_t count) {
    sums[static_cast<size_t>(offset / kPieceBytes)] =
        Checksum(bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(count)));
    return absl::OkStatus();
  }).IgnoreError();  // sums do not fail
  // The number of bytes is in the last piece's sum.
  return Checksum(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(sums.data()),
                                      sums.size() * sizeof(uint64_t)));
}

}  // namespace blockswap::base
