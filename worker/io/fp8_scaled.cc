// SPDX-License-Identifier: Apache-2.0
#include "worker/io/fp8_scaled.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/io/float_conversion.h"

namespace blockswap::worker {
namespace {

constexpr char kWeightSuffix[] = ".weight";
constexpr int64_t kRun = 64;          // inputs a scale covers, as musubi has it
constexpr float kLargest = 448;       // of E4M3
constexpr float kLeastScale = 1e-8f;  // keeps runs of zeros from dividing by zero
constexpr int64_t kPiece = 1024;      // values widened at a time: a few KiB of stack

int64_t Count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t side : shape) count *= side;
  return count;
}

// One element of a float type, at any alignment.
struct Float32 {
  using Bits = float;
  using Unsigned = uint32_t;
  static float Widen(float value) { return value; }
  static float Narrow(float value) { return value; }
};
struct BFloat16 {
  using Bits = uint16_t;
  using Unsigned = uint16_t;
  static float Widen(uint16_t bits) { return WidenBFloat16(bits); }
  static uint16_t Narrow(float value) { return NarrowToBFloat16(value); }
};
struct Float16 {
  using Bits = uint16_t;
  using Unsigned = uint16_t;
  static float Widen(uint16_t bits) { return WidenFloat16(bits); }
  static uint16_t Narrow(float value) { return NarrowToFloat16(value); }
};

template <typename Type>
float Load(const std::byte* from, int64_t index) {
  typename Type::Bits bits;
  memcpy(&bits, from + index * static_cast<int64_t>(sizeof(bits)), sizeof(bits));
  return Type::Widen(bits);
}

template <typename Type>
void Store(float value, std::byte* to, int64_t index) {
  const typename Type::Bits bits = Type::Narrow(value);
  memcpy(to + index * static_cast<int64_t>(sizeof(bits)), &bits, sizeof(bits));
}

template <typename Type>
float Rounded(float value) {
  return Type::Widen(Type::Narrow(value));
}

// Calls visit(Type) for the float type `type`; false for others.
template <typename Visit>
bool WithFloatType(StoredType type, const Visit& visit) {
  if (type == StoredType::kF32) {
    visit(Float32());
  } else if (type == StoredType::kBF16) {
    visit(BFloat16());
  } else if (type == StoredType::kF16) {
    visit(Float16());
  } else {
    return false;
  }
  return true;
}

// NaN where a value of the run is not finite. Magnitudes compare as their bits do, infinity and NaN
// above all others.
template <typename Type>
float LargestMagnitude(const std::byte* source, int64_t first, int64_t count) {
  using Bits = typename Type::Unsigned;
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  constexpr auto kSize = static_cast<int64_t>(sizeof(Bits));
  Bits largest = 0;
  for (int64_t i = first; i < first + count; ++i) {
    Bits bits;
    memcpy(&bits, source + i * kSize, sizeof(bits));
    bits &= kMagnitude;
    largest = bits > largest ? bits : largest;
  }
  const float value = Type::Widen(std::bit_cast<typename Type::Bits>(largest));
  return value <= std::numeric_limits<float>::max() ? value
                                                    : std::numeric_limits<float>::quiet_NaN();
}

template <typename Type>
void EncodeRun(const std::byte* source, int64_t first, int64_t count, float scale,
               std::byte* codes) {
  std::array<float, kPiece> values;
  std::array<uint8_t, kPiece> piece;
  for (int64_t begin = first; begin < first + count; begin += kPiece) {
    const auto size = static_cast<size_t>(std::min(kPiece, first + count - begin));
    for (size_t i = 0; i < size; ++i) {
      const float scaled = Load<Type>(source, begin + static_cast<int64_t>(i)) / scale;
      // 0 / 0 where the type has no value as small as kLeastScale.
      const float number = scaled == scaled ? scaled : 0.0f;
      values[i] = std::min(std::max(number, -kLargest), kLargest);
    }
    for (size_t i = 0; i < size; ++i) piece[i] = NarrowToFloat8E4M3(values[i]);
    memcpy(codes + begin, piece.data(), size);
  }
}

// The first run that holds a value that is not finite, or -1.
template <typename Type>
int64_t Quantise(const std::byte* source, const Fp8Format& format, std::byte* codes,
                 std::byte* scales) {
  const float least = Rounded<Type>(kLeastScale);
  for (int64_t run = 0; run < format.num_scales; ++run) {
    const int64_t first = run * format.run;
    const float largest = LargestMagnitude<Type>(source, first, format.run);
    if (std::isnan(largest)) return run;
    const float scale = std::max(Rounded<Type>(largest / kLargest), least);
    EncodeRun<Type>(source, first, format.run, scale, codes);
    Store<Type>(scale, scales, run);
  }
  return -1;
}

template <typename Scale, typename To>
void Dequantise(const Fp8Format& format, const std::byte* codes, const std::byte* scales,
                int64_t first_run, int64_t last_run, std::byte* destination) {
  std::array<float, kPiece> values;
  std::array<uint8_t, kPiece> piece;
  for (int64_t run = first_run; run < last_run; ++run) {
    const float scale = Load<Scale>(scales, run);
    const int64_t end = (run + 1) * format.run;
    for (int64_t begin = run * format.run; begin < end; begin += kPiece) {
      const auto size = static_cast<size_t>(std::min(kPiece, end - begin));
      memcpy(piece.data(), codes + begin, size);
      for (size_t i = 0; i < size; ++i) values[i] = WidenFloat8E4M3(piece[i]) * scale;
      for (size_t i = 0; i < size; ++i)
        Store<To>(values[i], destination, begin + static_cast<int64_t>(i));
    }
  }
}

}  // namespace

std::string Fp8ScaleName(const std::string& weight_name) {
  if (!absl::EndsWith(weight_name, kWeightSuffix)) return "";
  return absl::StrCat(weight_name.substr(0, weight_name.size() + 1 - sizeof(kWeightSuffix)),
                      ".scale_weight");
}

Fp8Format MakeFp8Format(StoredType type, const std::vector<int64_t>& shape) {
  const int64_t count = Count(shape);
  Fp8Format format;
  format.scale_type = type;
  format.run = shape.size() != 2 ? count : shape[1] % kRun == 0 ? kRun : shape[1];
  format.num_scales = format.run == 0 ? 0 : count / format.run;
  return format;
}

absl::StatusOr<Fp8Format> ReadFp8Format(const std::vector<int64_t>& shape,
                                        const TensorEntry& scale) {
  if (!WithFloatType(scale.type, [](auto) {})) {
    return absl::InvalidArgumentError(absl::StrCat("scales of type ", StoredTypeName(scale.type),
                                                   ", only F32, F16 and BF16 are read"));
  }
  Fp8Format format;
  format.scale_type = scale.type;
  format.stored = true;
  format.num_scales = Count(scale.shape);
  const bool matrix = shape.size() == 2;
  const bool fits = format.num_scales == 1 ||
                    (matrix && scale.shape == std::vector<int64_t>{shape[0], 1}) ||
                    (matrix && scale.shape.size() == 3 && scale.shape[0] == shape[0] &&
                     scale.shape[2] == 1 && scale.shape[1] > 0 && shape[1] % scale.shape[1] == 0);
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scales of shape [", absl::StrJoin(scale.shape, ", "),
        "] do not divide a weight of shape [", absl::StrJoin(shape, ", "), "] into equal runs"));
  }
  format.run = Count(shape) / format.num_scales;
  return format;
}

Fp8Format PlainFp8Format(const std::vector<int64_t>& shape) {
  Fp8Format format;
  format.scale_type = StoredType::kBF16;
  format.num_scales = 1;
  format.run = 1;
  for (const int64_t side : shape) format.run *= side;
  format.stored = format.plain = true;
  return format;
}

void WritePlainFp8Scale(std::byte* scale) {
  constexpr uint16_t kOne = 0x3f80;  // in bfloat16
  memcpy(scale, &kOne, sizeof(kOne));
}

absl::Status QuantiseFp8(StoredType from, absl::Span<const std::byte> source,
                         const Fp8Format& format, absl::Span<std::byte> codes,
                         absl::Span<std::byte> scales) {
  const int64_t count = format.num_values();
  if (from != format.scale_type ||
      static_cast<int64_t>(source.size()) != count * StoredTypeBytes(from) ||
      static_cast<int64_t>(codes.size()) != count ||
      static_cast<int64_t>(scales.size()) != format.scale_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot quantise ", source.size(), " bytes of ", StoredTypeName(from),
                     " into ", codes.size(), " codes and ", scales.size(),
                     " bytes of scales of type ", StoredTypeName(format.scale_type)));
  }
  int64_t bad_run = -1;
  if (!WithFloatType(from, [&](auto type) {
        bad_run = Quantise<decltype(type)>(source.data(), format, codes.data(), scales.data());
      })) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot quantise ", StoredTypeName(from), ", only F32, F16 and BF16"));
  }
  if (bad_run >= 0) {
    return absl::InvalidArgumentError(absl::StrCat("values ", bad_run * format.run, " to ",
                                                   (bad_run + 1) * format.run - 1,
                                                   " are not all finite, so no scale fits them"));
  }
  return absl::OkStatus();
}

void DequantiseFp8(const Fp8Format& format, const std::byte* codes, const std::byte* scales,
                   StoredType to, int64_t first_run, int64_t last_run, std::byte* destination) {
  WithFloatType(format.scale_type, [&](auto scale) {
    WithFloatType(to, [&](auto target) {
      Dequantise<decltype(scale), decltype(target)>(format, codes, scales, first_run, last_run,
                                                    destination);
    });
  });
}

}  // namespace blockswap::worker
