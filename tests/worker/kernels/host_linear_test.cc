// SPDX-License-Identifier: Apache-2.0
#include "worker/kernels/host_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "worker/io/float_conversion.h"
#include "worker/kernels/counter_random.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kSeed = 20261130;

std::vector<float> Normal(int64_t count, int64_t sample) {
  std::vector<float> numbers(static_cast<size_t>(count));
  CounterRandom({kSeed, 0, sample, RandomPurpose::kTest}).FillNormal(absl::MakeSpan(numbers));
  return numbers;
}

// A linear with all of its memory.
struct Given {
  explicit Given(int64_t in, int64_t out) : x(Normal(3 * in, 1)), bias(Normal(out, 2)) {
    linear.in = in, linear.out = out;
    linear.bias = bias.data();
    weight = Normal(in * out, 3);
    for (float& value : weight) {
      narrow.push_back(NarrowToBFloat16(value));
      value = WidenBFloat16(narrow.back());
    }
  }
  std::vector<float> Wide(int64_t rows) {
    linear.number = HostNumber::kFloat32;
    linear.weight = weight.data();
    std::vector<float> y(static_cast<size_t>(rows * linear.out));
    HostLinearFeatures(linear, x.data(), rows, 0, linear.out, y.data());
    return y;
  }
  std::vector<uint16_t> Narrow(int64_t rows) {
    linear.number = HostNumber::kBFloat16;
    linear.weight = narrow.data();
    std::vector<uint16_t> y(static_cast<size_t>(rows * linear.out));
    HostLinearFeatures(linear, x.data(), rows, 0, linear.out, y.data());
    return y;
  }

  HostLinear linear;
  std::vector<float> x, bias, weight;
  std::vector<uint16_t> narrow;
};

TEST(HostLinearTest, IsTheProductOfWeightAndInputPlusBias) {
  for (const int64_t in : {1, 15, 16, 67, 192}) {
    Given given(in, 9);
    const std::vector<float> y = given.Wide(3);
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t feature = 0; feature < 9; ++feature) {
        double exact = given.bias[static_cast<size_t>(feature)], size = std::fabs(exact);
        for (int64_t i = 0; i < in; ++i) {
          const double term = double{given.weight[static_cast<size_t>(feature * in + i)]} *
                              given.x[static_cast<size_t>(row * in + i)];
          exact += term, size += std::fabs(term);
        }
        EXPECT_NEAR(y[static_cast<size_t>(row * 9 + feature)], exact, 1e-6 * size) << in;
      }
    }
  }
}

TEST(HostLinearTest, RoundsTheFullPrecisionSumOnce) {
  Given given(67, 40);
  const std::vector<float> wide = given.Wide(2);
  const std::vector<uint16_t> narrow = given.Narrow(2);
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(narrow[i], NarrowToBFloat16(wide[i])) << i;
}

TEST(HostLinearTest, TheBitsOfAFeatureDoNotDependOnTheRange) {
  Given given(67, 40);
  const std::vector<float> whole = given.Wide(3);
  std::vector<float> parts(whole.size());
  for (int64_t first = 0; first < 40; first += 7) {
    HostLinearFeatures(given.linear, given.x.data(), 3, first, std::min<int64_t>(first + 7, 40),
                       parts.data());
  }
  EXPECT_EQ(memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)), 0);
}

TEST(HostLinearTest, AWidenedWeightGivesTheBitsOfAPlainOne) {
  Given given(67, 40);
  const std::vector<float> plain = given.Wide(2);
  given.linear.weight = nullptr;
  given.linear.widen = [&](int64_t first, int64_t last, void* weight) {
    memcpy(weight, given.weight.data() + first * 67,
           static_cast<size_t>((last - first) * 67) * sizeof(float));
  };
  std::vector<float> widened(plain.size());
  HostLinearFeatures(given.linear, given.x.data(), 2, 0, 40, widened.data());
  EXPECT_EQ(plain, widened);
}

}  // namespace
}  // namespace blockswap::worker
