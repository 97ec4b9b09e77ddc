// SPDX-License-Identifier: Apache-2.0
// Converts between the stored float types: widening is exact, narrowing rounds to nearest even.
#ifndef BLOCKSWAP_WORKER_IO_FLOAT_CONVERSION_H_
#define BLOCKSWAP_WORKER_IO_FLOAT_CONVERSION_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {

namespace internal {
// By masks: a compiler turns no `?:` into one when an arm has floating point arithmetic.
inline uint32_t Select(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = ~uint32_t{condition} + 1;
  return (yes & mask) | (no & ~mask);
}
}  // namespace internal

// The small ones are inline and without branches, so that loops over them are vectorised: a whole
// model goes through them at load, and fp8 weights at every use.
inline float WidenBFloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// A NaN stays a NaN: truncating it could clear its whole mantissa and make an infinity of it.
inline uint16_t NarrowToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  const uint32_t quiet = bits | 0x00400000;
  return static_cast<uint16_t>((value != value ? quiet : rounded) >> 16);
}

float WidenFloat16(uint16_t bits);
uint16_t NarrowToFloat16(float value);  // overflow becomes infinity

// E4M3 without infinities: the largest value is 448, and what would round beyond it becomes NaN.
inline float WidenFloat8E4M3(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu;
  const uint32_t bits = (magnitude << 20) + (uint32_t{120} << 23);
  // Below 2^-6 there is no implicit one: give it one and take it away again.
  const float subnormal = std::bit_cast<float>(bits + (uint32_t{1} << 23)) - 0x1p-6f;
  const uint32_t finite = internal::Select(magnitude < 8, std::bit_cast<uint32_t>(subnormal), bits);
  const uint32_t value = internal::Select(magnitude == 0x7f, 0x7fc00000, finite);
  return std::bit_cast<float>(value | (code & 0x80u) << 24);
}

inline uint8_t NarrowToFloat8E4M3(float value) {
  constexpr uint32_t kSmallestNormal = uint32_t{121} << 23;  // 2^-6
  constexpr uint32_t kOverflow = 0x43e80000;                 // 464, halfway to the next power
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80;
  const uint32_t magnitude = bits & 0x7fffffff;
  // Adding 2^14 leaves a count of 2^-9 in the last mantissa bits, rounded to nearest even.
  const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0x1p14f);
  const uint32_t rounded = magnitude + 0x7ffff + (magnitude >> 20 & 1);
  const uint32_t normal = (rounded >> 20) - (uint32_t{120} << 3);
  const uint32_t finite = internal::Select(magnitude < kSmallestNormal, subnormal, normal);
  return static_cast<uint8_t>(sign | internal::Select(magnitude > kOverflow, 0x7f, finite));
}

// F32, F16 and BF16 in any pairing; equal types are copied. InvalidArgument for other types and for
// sizes that differ in count.
absl::Status ConvertFloats(StoredType from, absl::Span<const std::byte> source, StoredType to,
                           absl::Span<std::byte> destination);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_IO_FLOAT_CONVERSION_H_
