// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/adamw.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

constexpr int64_t kCount = 37;  // odd: exercises the kernel's tail

at::Tensor Gradient(int64_t step) {
  return at::cos(at::arange(kCount, at::kFloat) * 0.9 + static_cast<double>(step));
}

// The textbook update in double, one element at a time.
struct Reference {
  std::vector<double> parameter, first, second;
  void Step(const at::Tensor& gradient, double rate, const AdamWConfig& config, int64_t step) {
    for (size_t i = 0; i < parameter.size(); ++i) {
      const double g = gradient[static_cast<int64_t>(i)].item<double>();
      parameter[i] *= 1.0 - rate * config.weight_decay;
      first[i] = config.beta1 * first[i] + (1 - config.beta1) * g;
      second[i] = config.beta2 * second[i] + (1 - config.beta2) * g * g;
      const double m = first[i] / (1 - std::pow(config.beta1, static_cast<double>(step)));
      const double v = second[i] / (1 - std::pow(config.beta2, static_cast<double>(step)));
      parameter[i] -= rate * m / (std::sqrt(v) + config.eps);
    }
  }
};

TEST(AdamWTest, FollowsTheTextbook) {
  AdamWConfig config;
  config.weight_decay = 0.1;
  at::Tensor parameters = at::sin(at::arange(kCount, at::kFloat));
  Reference reference{{}, std::vector<double>(kCount), std::vector<double>(kCount)};
  for (int64_t i = 0; i < kCount; ++i) reference.parameter.push_back(parameters[i].item<double>());
  AdamW optimizer(parameters, config);
  for (int64_t step = 1; step <= 5; ++step) {
    optimizer.Step(Gradient(step), 1e-2);
    reference.Step(Gradient(step), 1e-2, config, step);
  }
  EXPECT_EQ(optimizer.updates(), 5);
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(parameters[i].item<double>(), reference.parameter[static_cast<size_t>(i)], 1e-6)
        << i;
  }
}

TEST(AdamWTest, ContinuesToTheSameBits) {
  at::Tensor unbroken = at::ones({kCount}, at::kFloat);
  AdamW whole(unbroken, AdamWConfig{});
  for (int64_t step = 1; step <= 4; ++step) whole.Step(Gradient(step), 1e-3);

  at::Tensor first_half = at::ones({kCount}, at::kFloat);
  AdamW before(first_half, AdamWConfig{});
  for (int64_t step = 1; step <= 2; ++step) before.Step(Gradient(step), 1e-3);
  at::Tensor resumed = first_half.clone();
  AdamW after(resumed, AdamWConfig{});
  after.first_moment().copy_(before.first_moment());
  after.second_moment().copy_(before.second_moment());
  after.set_updates(before.updates());
  for (int64_t step = 3; step <= 4; ++step) after.Step(Gradient(step), 1e-3);
  EXPECT_TRUE(at::equal(resumed, unbroken));
}

}  // namespace
}  // namespace blockswap::worker
