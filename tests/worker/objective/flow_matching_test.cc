// SPDX-License-Identifier: Apache-2.0
#include "worker/objective/flow_matching.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

at::Tensor Ramp(std::vector<int64_t> shape, double scale) {
  const int64_t count = c10::multiply_integers(shape);
  return (at::arange(count, at::kFloat) * scale - 0.5).view(shape);
}

TEST(FlowMatchingTest, NoiseIsBlendedByTimeAndTheTargetIsTheVelocity) {
  const at::Tensor clean = Ramp({2, 3, 4}, 0.1), noise = Ramp({2, 3, 4}, -0.3);
  const NoisedTokens noised = AddNoise(clean, noise, {0.25, 1.0}, /*musubi_offset=*/false);
  EXPECT_TRUE(at::allclose(noised.noised_BSF[0], 0.75 * clean[0] + 0.25 * noise[0]));
  EXPECT_TRUE(at::equal(noised.noised_BSF[1], noise[1]));
  EXPECT_TRUE(at::equal(noised.target_BSF, noise - clean));
  EXPECT_EQ(noised.time_B[0].item<float>(), 0.25f);
}

TEST(FlowMatchingTest, MusubiOffsetMovesOnlyTheModelsTime) {
  const at::Tensor clean = Ramp({1, 2, 4}, 0.1), noise = Ramp({1, 2, 4}, -0.3);
  const NoisedTokens plain = AddNoise(clean, noise, {0.25}, /*musubi_offset=*/false);
  const NoisedTokens offset = AddNoise(clean, noise, {0.25}, /*musubi_offset=*/true);
  EXPECT_TRUE(at::equal(plain.noised_BSF, offset.noised_BSF));
  EXPECT_FLOAT_EQ(offset.time_B[0].item<float>(), 0.251f);
}

TEST(FlowMatchingTest, LossAndGradientEqualAutograd) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::Tensor output = Ramp({2, 3, 4}, 0.07).to(type).requires_grad_();
    const at::Tensor target = Ramp({2, 3, 4}, 0.02);
    const at::Tensor expected = at::mse_loss(output.to(at::kFloat), target);
    (expected * 0.5).backward();
    const LossValue loss = MeanSquaredError(output.detach(), target, /*weight=*/0.5);
    EXPECT_NEAR(loss.mean, expected.item<double>(), 1e-6);
    EXPECT_EQ(loss.output_gradient_BSF.scalar_type(), type);
    EXPECT_TRUE(at::allclose(loss.output_gradient_BSF.to(at::kFloat), output.grad().to(at::kFloat),
                             1e-2, 1e-7));
  }
}

TEST(FlowMatchingTest, TheSampleToBlameIsKnown) {
  at::Tensor output = at::zeros({3, 2, 4}, at::kFloat);
  output[1][0][0] = std::nanf("");
  output[2][1][3] = INFINITY;
  const LossValue loss = MeanSquaredError(output, at::ones({3, 2, 4}, at::kFloat), /*weight=*/1.0);
  EXPECT_TRUE(std::isfinite(loss.per_sample[0]));
  EXPECT_TRUE(std::isnan(loss.per_sample[1]));
  EXPECT_TRUE(std::isinf(loss.per_sample[2]));
  EXPECT_FALSE(std::isfinite(loss.mean));
}

}  // namespace
}  // namespace blockswap::worker
