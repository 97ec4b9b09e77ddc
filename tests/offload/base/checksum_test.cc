// SPDX-License-Identifier: Apache-2.0
#include "offload/base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "offload/base/pieces.h"

namespace blockswap::base {
namespace {

std::vector<std::byte> Pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  return bytes;
}

TEST(ChecksumTest, OneFlippedBitAnywhereChangesIt) {
  for (const size_t size : {1, 7, 8, 31, 32, 33, 100}) {
    std::vector<std::byte> bytes = Pattern(size);
    const uint64_t clean = Checksum(bytes);
    for (size_t i = 0; i < size * 8; ++i) {
      bytes[i / 8] ^= static_cast<std::byte>(1 << i % 8);
      EXPECT_NE(Checksum(bytes), clean) << size << " bytes, bit " << i;
      bytes[i / 8] ^= static_cast<std::byte>(1 << i % 8);
    }
    EXPECT_EQ(Checksum(bytes), clean);
  }
}

TEST(ChecksumTest, ZerosOfDifferentLengthsDiffer) {
  std::set<uint64_t> sums;
  for (size_t size = 0; size < 300; ++size) sums.insert(Checksum(std::vector<std::byte>(size)));
  EXPECT_EQ(sums.size(), 300u);
}

TEST(ChecksumTest, SwappedWordsDiffer) {
  std::vector<std::byte> bytes = Pattern(128);
  const uint64_t clean = Checksum(bytes);
  for (const size_t distance : {8, 32, 64}) {
    std::vector<std::byte> swapped = bytes;
    for (size_t i = 0; i < 8; ++i) std::swap(swapped[i], swapped[i + distance]);
    EXPECT_NE(Checksum(swapped), clean) << distance;
  }
}

TEST(ChecksumTest, SumOfPiecesDependsOnEachPieceTheirOrderAndTheLength) {
  const auto piece = static_cast<size_t>(kPieceBytes);
  std::vector<std::byte> bytes = Pattern(2 * piece + 100);
  bytes[0] ^= std::byte{1};  // the first two pieces would be alike
  std::set<uint64_t> sums = {ChecksumOfPieces(bytes)};
  for (const size_t at : {size_t{5}, piece + 5, 2 * piece + 5}) {
    std::vector<std::byte> other = bytes;
    other[at] ^= std::byte{1};
    EXPECT_TRUE(sums.insert(ChecksumOfPieces(other)).second) << at;
  }
  std::vector<std::byte> swapped = bytes;
  std::swap_ranges(swapped.begin(), swapped.begin() + kPieceBytes, swapped.begin() + kPieceBytes);
  EXPECT_TRUE(sums.insert(ChecksumOfPieces(swapped)).second);
  for (size_t size = 0; size < bytes.size(); size += piece / 2) {
    const auto part = absl::MakeConstSpan(bytes).first(size);
    EXPECT_TRUE(sums.insert(ChecksumOfPieces(part)).second) << size;
    EXPECT_EQ(ChecksumOfPieces(part), ChecksumOfPieces(part));
  }
}

}  // namespace
}  // namespace blockswap::base
