// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/counter_random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace blockswap::worker {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers published with the paper's reference implementation.
TEST(CounterRandomTest, GivesTheKnownAnswersOfPhilox) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandomTest, AnElementDoesNotDependOnHowManyAreDrawn) {
  const CounterRandom random({42, 7, 3, RandomPurpose::kNoise});
  std::vector<float> many(103), few(10);
  random.FillNormal(absl::MakeSpan(many));
  random.FillNormal(absl::MakeSpan(few));
  for (size_t i = 0; i < few.size(); ++i) EXPECT_EQ(many[i], few[i]) << i;
}

TEST(CounterRandomTest, EveryPartOfTheKeyChangesTheStream) {
  const RandomKey base{42, 7, 3, RandomPurpose::kNoise};
  std::vector<RandomKey> keys(7, base);
  keys[1].seed = 43;
  keys[2].seed = 42 + (int64_t{1} << 40);
  keys[3].step = 8;
  keys[4].step = 7 + (int64_t{1} << 33);
  keys[5].sample = 4;
  keys[6].purpose = RandomPurpose::kTimestep;
  std::set<double> firsts;
  for (const RandomKey& key : keys) firsts.insert(CounterRandom(key).Uniform(0));
  EXPECT_EQ(firsts.size(), keys.size());
}

TEST(CounterRandomTest, UniformsFillTheUnitInterval) {
  const CounterRandom random({1, 0, 0, RandomPurpose::kTest});
  std::vector<float> values(40000);
  random.FillUniform(absl::MakeSpan(values));
  double sum = 0;
  for (float value : values) {
    ASSERT_GE(value, 0.0f);
    ASSERT_LT(value, 1.0f);
    sum += value;
  }
  // Three standard errors of the mean of 40000 uniforms.
  EXPECT_NEAR(sum / 40000, 0.5, 3 * 0.2887 / 200);
  EXPECT_NEAR(random.Uniform(5), values[5], 0x1p-23);
}

TEST(CounterRandomTest, NormalsHaveTheMomentsOfTheStandardNormal) {
  const CounterRandom random({5, 1, 2, RandomPurpose::kTest});
  std::vector<float> values(40000);
  random.FillNormal(absl::MakeSpan(values));
  double mean = 0, square = 0, fourth = 0;
  for (float value : values) {
    const double x = static_cast<double>(value);
    mean += x / 40000;
    square += x * x / 40000;
    fourth += x * x * x * x / 40000;
  }
  EXPECT_NEAR(mean, 0, 3.0 / 200);
  EXPECT_NEAR(square, 1, 3 * std::sqrt(2.0) / 200);
  EXPECT_NEAR(fourth, 3, 3 * std::sqrt(96.0) / 200);
}

}  // namespace
}  // namespace blockswap::worker
