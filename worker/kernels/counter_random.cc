// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/counter_random.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace blockswap::worker {
namespace {

// The multipliers and key increments of the paper.
constexpr uint64_t kMultiplier0 = 0xD2511F53;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kKeyIncrement0 = 0x9E3779B9;
constexpr uint32_t kKeyIncrement1 = 0xBB67AE85;
constexpr int kRounds = 10;

uint32_t Low(uint64_t value) { return static_cast<uint32_t>(value); }
uint32_t High(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

// Two normals from two 32-bit words; the first is mapped to (0, 1] so that its logarithm is finite.
std::array<float, 2> BoxMuller(uint32_t first, uint32_t second) {
  const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(first) + 1.0) * 0x1p-32));
  const double angle = 2.0 * M_PI * (static_cast<double>(second) * 0x1p-32);
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1),
               High(product0) ^ counter[3] ^ key[1], Low(product0)};
    key[0] += kKeyIncrement0;
    key[1] += kKeyIncrement1;
  }
  return counter;
}

CounterRandom::CounterRandom(const RandomKey& key) {
  const auto seed = static_cast<uint64_t>(key.seed);
  const auto step = static_cast<uint64_t>(key.step);
  key_ = {Low(seed), High(seed)};
  counter_ = {0, static_cast<uint32_t>(key.sample), Low(step),
              (High(step) << 8) | static_cast<uint32_t>(key.purpose)};
}

std::array<uint32_t, 4> CounterRandom::Block(int64_t block) const {
  std::array<uint32_t, 4> counter = counter_;
  counter[0] = static_cast<uint32_t>(block);
  return Philox4x32(counter, key_);
}

double CounterRandom::Uniform(int64_t index) const {
  return static_cast<double>(Block(index / 4)[static_cast<size_t>(index % 4)]) * 0x1p-32;
}

void CounterRandom::FillUniform(absl::Span<float> destination) const {
  for (size_t i = 0; i < destination.size(); i += 4) {
    const std::array<uint32_t, 4> words = Block(static_cast<int64_t>(i / 4));
    for (size_t j = 0; j < std::min<size_t>(4, destination.size() - i); ++j) {
      destination[i + j] = static_cast<float>(words[j] >> 8) * 0x1p-24f;
    }
  }
}

void CounterRandom::FillNormal(absl::Span<float> destination) const {
  for (size_t i = 0; i < destination.size(); i += 4) {
    const std::array<uint32_t, 4> words = Block(static_cast<int64_t>(i / 4));
    const std::array<float, 2> first = BoxMuller(words[0], words[1]);
    const std::array<float, 2> second = BoxMuller(words[2], words[3]);
    const std::array<float, 4> normals = {first[0], first[1], second[0], second[1]};
    std::copy_n(normals.begin(), std::min<size_t>(4, destination.size() - i),
                destination.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace blockswap::worker
