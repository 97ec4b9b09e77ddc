// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/gradient_norm.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

at::Tensor Wave(int64_t count) { return at::sin(at::arange(count, at::kFloat) * 0.37) * 3; }

TEST(GradientNormTest, EqualsTheDefinition) {
  for (const int64_t count : {1, 17, 32768, 100'003}) {
    const at::Tensor flat = Wave(count);
    const double expected = flat.to(at::kDouble).square().sum().sqrt().item<double>();
    EXPECT_NEAR(GlobalNorm(flat), expected, 1e-9 * (1 + expected)) << count;
  }
}

TEST(GradientNormTest, BitsDoNotDependOnTheNumberOfThreads) {
  const at::Tensor flat = Wave(500'000);
  at::set_num_threads(1);
  const double alone = GlobalNorm(flat);
  at::set_num_threads(2);
  EXPECT_EQ(GlobalNorm(flat), alone);
  at::set_num_threads(1);
}

TEST(GradientNormTest, IsNotFiniteExactlyWhenAnElementIsNot) {
  at::Tensor flat = at::full({100'000}, std::numeric_limits<float>::max(), at::kFloat);
  EXPECT_TRUE(std::isfinite(GlobalNorm(flat)));  // in fp32 the squares would overflow
  flat[77'777] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(GlobalNorm(flat)));
  flat[77'777] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(std::isfinite(GlobalNorm(flat)));
}

TEST(GradientNormTest, ClippingScalesDownAndNeverUp) {
  at::Tensor flat = Wave(1000);
  const double norm = GlobalNorm(flat);
  const at::Tensor before = flat.clone();
  ClipByNorm(flat, norm, norm * 2);
  EXPECT_TRUE(at::equal(flat, before));
  ClipByNorm(flat, norm, /*max_norm=*/0);
  EXPECT_TRUE(at::equal(flat, before));
  ClipByNorm(flat, norm, norm / 4);
  EXPECT_NEAR(GlobalNorm(flat), norm / 4, 1e-4 * norm);
}

}  // namespace
}  // namespace blockswap::worker
