// SPDX-License-Identifier: Apache-2.0
// Compiles a CPU kernel for several vector widths and picks one when the program starts.
#ifndef BLOCKSWAP_WORKER_KERNELS_VECTOR_CLONES_H_
#define BLOCKSWAP_WORKER_KERNELS_VECTOR_CLONES_H_

#include <bit>
#include <cstdint>

// The build's baseline stays x86-64 so that binaries move between machines. The choice is made by
// the loader, before a sanitizer's runtime is up, so sanitized builds take the baseline alone.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define BLOCKSWAP_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BLOCKSWAP_VECTOR_CLONES
#endif

// Inlined into each clone, which otherwise would call a baseline copy.
#define BLOCKSWAP_INTO_CLONES inline __attribute__((always_inline))

namespace blockswap::worker {

BLOCKSWAP_INTO_CLONES float LoadNumber(float value) { return value; }
BLOCKSWAP_INTO_CLONES float LoadNumber(uint16_t bfloat16_bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bfloat16_bits) << 16);
}

template <typename T>
T StoreNumber(float value);
template <>
BLOCKSWAP_INTO_CLONES float StoreNumber<float>(float value) {
  return value;
}
// To nearest even; a NaN stays one.
template <>
BLOCKSWAP_INTO_CLONES uint16_t StoreNumber<uint16_t>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

// Sum of f(i) over [0, count) in sixteen fixed lanes: one order of addition for every vector width.
template <typename Term>
BLOCKSWAP_INTO_CLONES float SumInLanes(int64_t count, const Term& term) {
  float lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int64_t lane = 0; lane < 16; ++lane) lanes[lane] += term(i + lane);
  }
  for (; i < count; ++i) lanes[i % 16] += term(i);
  float sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_KERNELS_VECTOR_CLONES_H_
