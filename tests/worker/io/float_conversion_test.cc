// SPDX-License-Identifier: Apache-2.0
#include "worker/io/float_conversion.h"

#include <gtest/gtest.h>

#include <string.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace blockswap::worker {
namespace {

// The obviously right way: of all values of the narrow type, the nearest, the even one when two are
// as near.
template <typename Widen>
uint16_t NearestEven(float value, Widen widen) {
  uint16_t best = 0;
  double least = INFINITY;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto candidate = static_cast<uint16_t>(bits);
    const double wide = widen(candidate);
    if (!std::isfinite(wide) || std::signbit(wide) != std::signbit(value)) continue;
    const double distance = std::abs(wide - static_cast<double>(value));
    if (distance < least || (distance == least && candidate % 2 == 0)) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

TEST(FloatConversionTest, WideningThenNarrowingIsExactForEveryValue) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (!std::isnan(WidenBFloat16(half))) {
      EXPECT_EQ(NarrowToBFloat16(WidenBFloat16(half)), half);
    }
    if (!std::isnan(WidenFloat16(half))) {
      EXPECT_EQ(NarrowToFloat16(WidenFloat16(half)), half);
    }
  }
}

TEST(FloatConversionTest, NarrowingRoundsToNearestEven) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 40; ++i) {
    const float value = std::ldexp(static_cast<float>(random() % 100'000) - 50'000.0f,
                                   static_cast<int>(random() % 30) - 32);
    EXPECT_EQ(NarrowToBFloat16(value), NearestEven(value, WidenBFloat16)) << value;
    EXPECT_EQ(NarrowToFloat16(value), NearestEven(value, WidenFloat16)) << value;
  }
}

TEST(FloatConversionTest, TiesGoToEven) {
  EXPECT_EQ(NarrowToBFloat16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // halfway, even below
  EXPECT_EQ(NarrowToBFloat16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // halfway, even above
  EXPECT_EQ(NarrowToFloat16(2049.0f), 0x6800);                             // 2048 and 2050
  EXPECT_EQ(NarrowToFloat16(2051.0f), 0x6802);                             // 2050 and 2052
  EXPECT_EQ(NarrowToFloat16(std::ldexp(1.0f, -25)), 0x0000);               // half the smallest
}

TEST(FloatConversionTest, KeepsSpecialValues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(NarrowToFloat16(65519.0f), 0x7bff);
  EXPECT_EQ(NarrowToFloat16(65520.0f), 0x7c00);
  EXPECT_EQ(NarrowToFloat16(-kInfinity), 0xfc00);
  EXPECT_EQ(NarrowToBFloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(NarrowToFloat16(-0.0f), 0x8000);
  // A NaN whose payload lies only in the bits that are cut off.
  const float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(WidenBFloat16(NarrowToBFloat16(nan))));
  EXPECT_TRUE(std::isnan(WidenFloat16(NarrowToFloat16(nan))));
}

// E4M3 by its definition: sign, four bits of exponent with a bias of 7, three of mantissa.
TEST(FloatConversionTest, Float8HasTheValuesOfItsDefinition) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    const float value = WidenFloat8E4M3(static_cast<uint8_t>(code));
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(value, code < 128 ? magnitude : -magnitude) << code;
      EXPECT_EQ(std::signbit(value), code >= 128);
      EXPECT_EQ(NarrowToFloat8E4M3(value), code);
    }
  }
}

TEST(FloatConversionTest, Float8RoundsToNearestEven) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  std::vector<float> values;
  for (int code = 0; code < 126; ++code) {  // midpoints, and what is just beside them
    const float middle = (WidenFloat8E4M3(static_cast<uint8_t>(code)) +
                          WidenFloat8E4M3(static_cast<uint8_t>(code + 1))) /
                         2;
    for (const float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 500.0f)})
      values.push_back(random() % 2 == 0 ? value : -value);
  }
  for (int i = 0; i < 1000; ++i)
    values.push_back(std::ldexp(static_cast<float>(random() % 20'001) - 10'000.0f,
                                static_cast<int>(random() % 20) - 24));
  for (const float value : values) {
    uint8_t best = 0;
    double least = INFINITY;
    for (int code = 0; code < 256; ++code) {
      const double wide = WidenFloat8E4M3(static_cast<uint8_t>(code));
      if (std::isnan(wide) || std::signbit(wide) != std::signbit(value)) continue;
      const double distance = std::abs(wide - static_cast<double>(value));
      if (distance < least || (distance == least && code % 2 == 0)) {
        least = distance;
        best = static_cast<uint8_t>(code);
      }
    }
    ASSERT_LE(std::abs(value), 448.0f);
    EXPECT_EQ(NarrowToFloat8E4M3(value), best) << value;
  }
}

TEST(FloatConversionTest, Float8BeyondItsRangeIsNotANumber) {
  EXPECT_EQ(NarrowToFloat8E4M3(464.0f), 0x7e);  // rounds to 448
  EXPECT_EQ(NarrowToFloat8E4M3(std::nextafter(464.0f, 465.0f)), 0x7f);
  EXPECT_EQ(NarrowToFloat8E4M3(-std::numeric_limits<float>::infinity()), 0xff);
  EXPECT_EQ(NarrowToFloat8E4M3(std::numeric_limits<float>::quiet_NaN()) & 0x7f, 0x7f);
}

TEST(FloatConversionTest, ConvertsUnalignedSourcesBetweenAllTypes) {
  const std::vector<float> values = {0.0f, 1.0f, -2.5f, 1024.0f};
  std::vector<std::byte> source(1 + values.size() * sizeof(float));
  memcpy(source.data() + 1, values.data(), values.size() * sizeof(float));
  const auto unaligned = absl::MakeConstSpan(source).subspan(1);
  for (const StoredType middle : {StoredType::kF16, StoredType::kBF16}) {
    for (const StoredType last : {StoredType::kF16, StoredType::kBF16, StoredType::kF32}) {
      std::vector<std::byte> a(values.size() * 2);
      std::vector<std::byte> b(values.size() * static_cast<size_t>(StoredTypeBytes(last)));
      std::vector<float> back(values.size());
      ASSERT_TRUE(ConvertFloats(StoredType::kF32, unaligned, middle, absl::MakeSpan(a)).ok());
      ASSERT_TRUE(ConvertFloats(middle, a, last, absl::MakeSpan(b)).ok());
      ASSERT_TRUE(ConvertFloats(last, b, StoredType::kF32,
                                absl::MakeSpan(reinterpret_cast<std::byte*>(back.data()), 16))
                      .ok());
      EXPECT_EQ(back, values);
    }
  }
}

TEST(FloatConversionTest, RefusesOtherTypesAndWrongSizes) {
  std::vector<std::byte> a(8), b(8);
  EXPECT_TRUE(absl::IsInvalidArgument(
      ConvertFloats(StoredType::kI32, a, StoredType::kF32, absl::MakeSpan(b))));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ConvertFloats(StoredType::kF32, a, StoredType::kBF16, absl::MakeSpan(b))));
}

}  // namespace
}  // namespace blockswap::worker
