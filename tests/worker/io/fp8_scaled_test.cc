// SPDX-License-Identifier: Apache-2.0
#include "worker/io/fp8_scaled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/io/float_conversion.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

struct Quantised {
  Bytes codes, scales;
};

absl::StatusOr<Quantised> Quantise(StoredType type, const Bytes& source, const Fp8Format& format) {
  Quantised made{Bytes(static_cast<size_t>(format.num_values())),
                 Bytes(static_cast<size_t>(format.scale_bytes()))};
  const absl::Status status =
      QuantiseFp8(type, source, format, absl::MakeSpan(made.codes), absl::MakeSpan(made.scales));
  if (!status.ok()) return status;
  return made;
}

Bytes Stored(const std::vector<float>& values, StoredType type) {
  Bytes bytes(values.size() * static_cast<size_t>(StoredTypeBytes(type)));
  const auto source = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                                          values.size() * sizeof(float));
  EXPECT_TRUE(ConvertFloats(StoredType::kF32, source, type, absl::MakeSpan(bytes)).ok());
  return bytes;
}

std::vector<float> Widened(const Bytes& bytes, StoredType type) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(StoredTypeBytes(type)));
  EXPECT_TRUE(ConvertFloats(type, bytes, StoredType::kF32,
                            absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                                           values.size() * sizeof(float)))
                  .ok());
  return values;
}

std::vector<float> Dequantised(const Quantised& made, const Fp8Format& format, StoredType to) {
  Bytes bytes(static_cast<size_t>(format.num_values() * StoredTypeBytes(to)));
  DequantiseFp8(format, made.codes.data(), made.scales.data(), to, 0, format.num_scales,
                bytes.data());
  return Widened(bytes, to);
}

class Fp8ScaledTest : public ::testing::TestWithParam<StoredType> {
 protected:
  std::vector<float> RandomValues(size_t count) {
    std::vector<float> values(count);
    for (float& value : values) {
      value = std::ldexp(static_cast<float>(random_() % 20'001) / 10'000.0f - 1.0f,
                         static_cast<int>(random_() % 12) - 10);
    }
    return values;
  }

  const uint32_t seed_ = std::random_device{}();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, absl::StrCat("seed ", seed_)};
  std::mt19937 random_{seed_};
};
INSTANTIATE_TEST_SUITE_P(Types, Fp8ScaledTest,
                         ::testing::Values(StoredType::kF32, StoredType::kBF16, StoredType::kF16),
                         [](const auto& param) {
                           const absl::string_view name = StoredTypeName(param.param);
                           return std::string(name.data(), name.size());
                         });

TEST_P(Fp8ScaledTest, ScalesAreTheLargestMagnitudeOver448InTheWeightsType) {
  const std::vector<int64_t> shape = {3, 128};
  const Bytes source = Stored(RandomValues(3 * 128), GetParam());
  const Fp8Format format = MakeFp8Format(GetParam(), shape);
  ASSERT_EQ(format.run, 64);
  ASSERT_EQ(format.num_scales, 6);
  const auto made = Quantise(GetParam(), source, format);
  ASSERT_TRUE(made.ok()) << made.status();
  const std::vector<float> values = Widened(source, GetParam());
  const std::vector<float> scales = Widened(made->scales, GetParam());
  for (size_t run = 0; run < scales.size(); ++run) {
    float largest = 0;
    for (size_t i = run * 64; i < run * 64 + 64; ++i)
      largest = std::max(largest, std::abs(values[i]));
    const std::vector<float> expected = Widened(Stored({largest / 448.0f}, GetParam()), GetParam());
    EXPECT_EQ(scales[run], expected[0]);
  }
}

TEST_P(Fp8ScaledTest, EveryCodeIsTheNearestOne) {
  const Bytes source = Stored(RandomValues(2 * 192), GetParam());
  const Fp8Format format = MakeFp8Format(GetParam(), {2, 192});
  const auto made = Quantise(GetParam(), source, format);
  ASSERT_TRUE(made.ok());
  const std::vector<float> values = Widened(source, GetParam());
  const std::vector<float> scales = Widened(made->scales, GetParam());
  const std::vector<float> back = Dequantised(*made, format, StoredType::kF32);
  for (size_t i = 0; i < values.size(); ++i) {
    const float scale = scales[i / 64];
    const float scaled = std::clamp(values[i] / scale, -448.0f, 448.0f);
    float nearest = std::numeric_limits<float>::infinity();
    for (int code = 0; code < 256; ++code) {
      const float value = WidenFloat8E4M3(static_cast<uint8_t>(code));
      if (std::abs(value - scaled) < std::abs(nearest - scaled)) nearest = value;
    }
    const float code = WidenFloat8E4M3(std::to_integer<uint8_t>(made->codes[i]));
    EXPECT_EQ(std::abs(code - scaled), std::abs(nearest - scaled)) << values[i];
    EXPECT_EQ(back[i], code * scale);
  }
}

TEST_P(Fp8ScaledTest, WideningRoundsTheProductOnce) {
  const Fp8Format format = MakeFp8Format(GetParam(), {4, 64});
  const auto made = Quantise(GetParam(), Stored(RandomValues(4 * 64), GetParam()), format);
  ASSERT_TRUE(made.ok());
  const std::vector<float> exact = Dequantised(*made, format, StoredType::kF32);
  for (const StoredType to : {StoredType::kBF16, StoredType::kF16}) {
    EXPECT_EQ(Dequantised(*made, format, to), Widened(Stored(exact, to), to));
  }
}

TEST_P(Fp8ScaledTest, ARunOfZerosStaysZero) {
  const Fp8Format format = MakeFp8Format(GetParam(), {1, 64});
  const auto made = Quantise(GetParam(), Stored(std::vector<float>(64), GetParam()), format);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(Dequantised(*made, format, StoredType::kF32), std::vector<float>(64));
}

// F077: widths that 64 does not divide have a scale per row; what is no matrix, one for all.
TEST_P(Fp8ScaledTest, WidthsWithoutWholeBlocksGetAScalePerRow) {
  const Fp8Format rows = MakeFp8Format(GetParam(), {5, 96});
  EXPECT_EQ(rows.run, 96);
  EXPECT_EQ(rows.num_scales, 5);
  const Fp8Format vector = MakeFp8Format(GetParam(), {128});
  EXPECT_EQ(vector.run, 128);
  EXPECT_EQ(vector.num_scales, 1);
  const auto made = Quantise(GetParam(), Stored(RandomValues(5 * 96), GetParam()), rows);
  EXPECT_TRUE(made.ok()) << made.status();
}

TEST_P(Fp8ScaledTest, RefusesValuesThatAreNotFinite) {
  const Fp8Format format = MakeFp8Format(GetParam(), {2, 64});
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = RandomValues(128);
    values[77] = bad;
    const auto made = Quantise(GetParam(), Stored(values, GetParam()), format);
    EXPECT_TRUE(absl::IsInvalidArgument(made.status()));
    EXPECT_THAT(made.status().ToString(), HasSubstr("values 64 to 127 are not all finite"));
  }
}

TEST(Fp8FormatTest, ReadsTheFormsOfScalesThatFilesHave) {
  const std::vector<int64_t> shape = {6, 192};
  const auto read = [&](std::vector<int64_t> scale) {
    return ReadFp8Format(shape, {StoredType::kBF16, std::move(scale), 0, 0});
  };
  for (const std::vector<int64_t>& scalar : {std::vector<int64_t>{}, {1}}) {
    ASSERT_TRUE(read(scalar).ok());
    EXPECT_EQ(read(scalar)->run, 6 * 192);
  }
  ASSERT_TRUE(read({6, 1}).ok());
  EXPECT_EQ(read({6, 1})->run, 192);
  ASSERT_TRUE(read({6, 3, 1}).ok());
  EXPECT_EQ(read({6, 3, 1})->run, 64);
  EXPECT_TRUE(read({6, 3, 1})->stored);
  for (const std::vector<int64_t>& wrong :
       {std::vector<int64_t>{6, 5, 1}, {3, 6, 1}, {192, 1}, {6}, {1, 192}, {6, 0, 1}, {0}}) {
    EXPECT_THAT(read(wrong).status().ToString(),
                HasSubstr("do not divide a weight of shape [6, 192]"));
  }
  EXPECT_THAT(ReadFp8Format(shape, {StoredType::kI32, {6, 1}, 0, 0}).status().ToString(),
              HasSubstr("scales of type I32"));
}

TEST(Fp8FormatTest, NamesScalesBesideTheirWeight) {
  EXPECT_EQ(Fp8ScaleName("a.weight.weight"), "a.weight.scale_weight");
  EXPECT_EQ(Fp8ScaleName("a.bias"), "");
  EXPECT_EQ(Fp8ScaleName("weight"), "");
}

TEST(Fp8FormatTest, RefusesSizesThatDoNotFit) {
  const Fp8Format format = MakeFp8Format(StoredType::kBF16, {1, 64});
  Bytes source(128), codes(64), scales(2), small(63);
  EXPECT_TRUE(
      QuantiseFp8(StoredType::kBF16, source, format, absl::MakeSpan(codes), absl::MakeSpan(scales))
          .ok());
  EXPECT_TRUE(absl::IsInvalidArgument(QuantiseFp8(StoredType::kBF16, source, format,
                                                  absl::MakeSpan(small), absl::MakeSpan(scales))));
  EXPECT_TRUE(absl::IsInvalidArgument(QuantiseFp8(StoredType::kF16, source, format,
                                                  absl::MakeSpan(codes), absl::MakeSpan(scales))));
}

}  // namespace
}  // namespace blockswap::worker
