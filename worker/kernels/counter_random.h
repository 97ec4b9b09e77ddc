// SPDX-License-Identifier: Apache-2.0
// Random numbers that are a pure function of (seed, step, sample, purpose, index): independent of
// threads, plan and resume.
#ifndef BLOCKSWAP_WORKER_KERNELS_COUNTER_RANDOM_H_
#define BLOCKSWAP_WORKER_KERNELS_COUNTER_RANDOM_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"

namespace blockswap::worker {

// What a stream of numbers is for; the values are part of the results, so they are never reused or
// renumbered.
enum class RandomPurpose : uint8_t {
  kNoise = 0,
  kTimestep = 1,
  kAdapterInit = 2,
  kSampleNoise = 3,
  kTest = 255,
};

// Names one stream. Ranges: step in [0, 2^56), sample in [0, 2^32); any seed.
struct RandomKey {
  int64_t seed = 0;
  int64_t step = 0;
  int64_t sample = 0;
  RandomPurpose purpose = RandomPurpose::kNoise;
};

// Philox4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// One stream of at most 2^34 numbers. Element i depends on i alone, never on how many were drawn at
// once. Thread safety: safe, immutable.
class CounterRandom {
 public:
  explicit CounterRandom(const RandomKey& key);

  // Number `index` of the stream: uniform in [0, 1) with 32 random bits.
  double Uniform(int64_t index) const;
  // Uniform in [0, 1) with 24 random bits (exact in float).
  void FillUniform(absl::Span<float> destination) const;
  // Standard normal by Box and Muller's method, evaluated in double.
  void FillNormal(absl::Span<float> destination) const;

 private:
  std::array<uint32_t, 4> Block(int64_t block) const;

  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;  // word 0 is the block's index
};

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_KERNELS_COUNTER_RANDOM_H_
