// SPDX-License-Identifier: Apache-2.0
#include "worker/io/float_conversion.h"

#include <string.h>

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace blockswap::worker {
namespace {

bool IsFloat(StoredType type) {
  return type == StoredType::kF32 || type == StoredType::kF16 || type == StoredType::kBF16;
}

// Element loads by memcpy: a file may place its data at any alignment.
template <typename From, typename To, typename Convert>
void ConvertAll(absl::Span<const std::byte> source, absl::Span<std::byte> destination,
                Convert convert) {
  const size_t count = source.size() / sizeof(From);
  for (size_t i = 0; i < count; ++i) {
    From from;
    memcpy(&from, source.data() + i * sizeof(From), sizeof(From));
    const To to = convert(from);
    memcpy(destination.data() + i * sizeof(To), &to, sizeof(To));
  }
}

}  // namespace

float WidenFloat16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits >> 10 & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float subnormal = std::ldexp(static_cast<float>(mantissa), -24);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

uint16_t NarrowToFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x477ff000)
    return static_cast<uint16_t>(sign | 0x7c00);  // rounds to 65536 or more
  if (magnitude < 0x38800000) {  // below the smallest normal half: a count of 2^-24
    const float scaled = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - (uint32_t{112} << 23)) >> 13);
}

absl::Status ConvertFloats(StoredType from, absl::Span<const std::byte> source, StoredType to,
                           absl::Span<std::byte> destination) {
  if (!IsFloat(from) || !IsFloat(to)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot convert ", StoredTypeName(from), " to ",
                                                   StoredTypeName(to),
                                                   ": only F32, F16 and BF16 are"));
  }
  const auto from_bytes = static_cast<size_t>(StoredTypeBytes(from));
  const auto to_bytes = static_cast<size_t>(StoredTypeBytes(to));
  if (source.size() % from_bytes != 0 ||
      source.size() / from_bytes * to_bytes != destination.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot convert ", source.size(), " bytes of ", StoredTypeName(from), " into ",
                     destination.size(), " bytes of ", StoredTypeName(to)));
  }
  if (from == to) {
    if (!source.empty()) memcpy(destination.data(), source.data(), source.size());
    return absl::OkStatus();
  }
  if (from == StoredType::kBF16 && to == StoredType::kF32) {
    ConvertAll<uint16_t, float>(source, destination, WidenBFloat16);
  } else if (from == StoredType::kF16 && to == StoredType::kF32) {
    ConvertAll<uint16_t, float>(source, destination, WidenFloat16);
  } else if (from == StoredType::kF32 && to == StoredType::kBF16) {
    ConvertAll<float, uint16_t>(source, destination, NarrowToBFloat16);
  } else if (from == StoredType::kF32 && to == StoredType::kF16) {
    ConvertAll<float, uint16_t>(source, destination, NarrowToFloat16);
  } else if (from == StoredType::kBF16) {
    ConvertAll<uint16_t, uint16_t>(source, destination,
                                   [](uint16_t x) { return NarrowToFloat16(WidenBFloat16(x)); });
  } else {
    ConvertAll<uint16_t, uint16_t>(source, destination,
                                   [](uint16_t x) { return NarrowToBFloat16(WidenFloat16(x)); });
  }
  return absl::OkStatus();
}

}  // namespace blockswap::worker
