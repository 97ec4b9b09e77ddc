// SPDX-License-Identifier: Apache-2.0
#include "worker/model/time_embedding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace blockswap::worker {
namespace {

TEST(TimeEmbeddingTest, CosinesComeFirstAndFrequenciesFallOverHalfTheWidth) {
  const double time = 0.4375;  // exact in fp32
  const at::Tensor sinusoid = Sinusoid(at::full({1}, time, at::kFloat), 256, 1000);
  ASSERT_EQ(sinusoid.sizes(), at::IntArrayRef({1, 256}));
  for (int64_t k = 0; k < 128; ++k) {
    const double angle = time * std::exp(-std::log(10000.0) * static_cast<double>(k) / 128) * 1000;
    // Arguments reach 1000, where fp32 is 6e-5 apart.
    EXPECT_NEAR(sinusoid[0][k].item<double>(), std::cos(angle), 1e-4) << k;
    EXPECT_NEAR(sinusoid[0][128 + k].item<double>(), std::sin(angle), 1e-4) << k;
  }
}

TEST(TimeEmbeddingTest, StaysInFp32) {
  EXPECT_EQ(Sinusoid(at::full({3}, 0.5, at::kFloat), 8, 1000).scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace blockswap::worker
