// SPDX-License-Identifier: Apache-2.0
#include "worker/model/rope.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <vector>

#include "tests/worker/model/tiny_model.h"

namespace blockswap::worker {
namespace {

using testing::RandomTensor;

constexpr double kEps = 1e-6;

RotaryTable ThreeAxes(int64_t tokens, const std::vector<int64_t>& axes) {
  std::vector<std::vector<int64_t>> positions(3);
  for (int64_t i = 0; i < tokens; ++i) {
    positions[0].push_back(i / 3);
    positions[1].push_back(i - 4);
    positions[2].push_back(2 * i - 7);
  }
  return MakeRotaryTable(positions, axes, 10000, at::kCPU);
}

double MaxError(const at::Tensor& actual, const at::Tensor& expected) {
  return (actual - expected).abs().max().item<double>();
}

TEST(RopeTest, AnglesArePositionTimesFallingPowersOnEachAxis) {
  const RotaryTable table = ThreeAxes(9, {4, 6, 6});
  ASSERT_EQ(table.cos_LP.sizes(), at::IntArrayRef({9, 8}));
  for (int64_t token : {0, 5, 8}) {
    const std::vector<double> positions = {static_cast<double>(token / 3),
                                           static_cast<double>(token - 4),
                                           static_cast<double>(2 * token - 7)};
    int64_t pair = 0;
    for (size_t axis = 0; axis < 3; ++axis) {
      const int width = axis == 0 ? 4 : 6;
      for (int j = 0; j < width / 2; ++j, ++pair) {
        const double angle = positions[axis] * std::pow(10000.0, -2.0 * j / width);
        EXPECT_NEAR(table.cos_LP[token][pair].item<double>(), std::cos(angle), 2e-6);
        EXPECT_NEAR(table.sin_LP[token][pair].item<double>(), std::sin(angle), 2e-6);
      }
    }
  }
}

// The definition of the interleaved form: pair (2j, 2j + 1) as a complex number times e^(i angle).
TEST(RopeTest, RotationIsAComplexProduct) {
  const at::Tensor x = RandomTensor({2, 9, 3, 16}, 1);
  const RotaryTable table = ThreeAxes(9, {4, 6, 6});
  const at::Tensor turns = at::complex(table.cos_LP, table.sin_LP).unsqueeze(1);
  const at::Tensor expected =
      at::view_as_real(at::view_as_complex(x.view({2, 9, 3, 8, 2})) * turns).flatten(-2);
  EXPECT_LT(MaxError(RotatePairs(x, table, false), expected), 1e-6);
  EXPECT_LT(MaxError(RotatePairs(expected, table, true), x), 1e-6);
}

at::Tensor Definition(const at::Tensor& x, const at::Tensor& weight, const RotaryTable& table) {
  const at::Tensor normed = x * at::rsqrt(x.square().mean(-1, true) + kEps) * weight;
  const at::Tensor even = normed.unflatten(-1, {-1, 2}).select(-1, 0),
                   odd = normed.unflatten(-1, {-1, 2}).select(-1, 1);
  const at::Tensor cos = table.cos_LP.to(x.scalar_type()).unsqueeze(1),
                   sin = table.sin_LP.to(x.scalar_type()).unsqueeze(1);
  return at::stack({even * cos - odd * sin, even * sin + odd * cos}, -1).flatten(-2);
}

class HeadNormRotaryTest : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(HeadWidths, HeadNormRotaryTest, ::testing::Values(2, 16, 20, 64, 128));

TEST_P(HeadNormRotaryTest, MatchesAutogradOverItsDefinition) {
  const int64_t width = GetParam();
  const at::Tensor x = RandomTensor({2, 9, 3, width}, 1),
                   weight = RandomTensor({width}, 2, 0.3).add_(1);
  const at::Tensor grad = RandomTensor({2, 9, 3, width}, 3);
  const RotaryTable table = ThreeAxes(9, {width, 0, 0});
  const at::Tensor leaf = x.to(at::kDouble).requires_grad_();
  const at::Tensor expected = Definition(leaf, weight.to(at::kDouble), table);
  torch::autograd::backward({expected}, {grad.to(at::kDouble)});
  // Into and out of the middle of a longer joint buffer.
  at::Tensor joint = at::zeros({2, 14, 3, width}), joint_grad = at::zeros({2, 14, 3, width});
  joint_grad.narrow(1, 4, 9).copy_(grad);
  HeadNormRotary(x, weight, table, kEps, joint.narrow(1, 4, 9));
  EXPECT_LT(MaxError(joint.narrow(1, 4, 9), expected), 1e-5);
  EXPECT_EQ(joint.narrow(1, 0, 4).abs().max().item<float>(), 0);
  EXPECT_EQ(joint.narrow(1, 13, 1).abs().max().item<float>(), 0);
  EXPECT_LT(MaxError(HeadNormRotaryBackward(joint_grad.narrow(1, 4, 9), x, weight, table, kEps),
                     leaf.grad()),
            1e-5);
}

// Heads that do not lie side by side take the composed operations, which are also what a CUDA
// device runs.
TEST_P(HeadNormRotaryTest, TheKernelAndTheComposedOperationsAgree) {
  const int64_t width = GetParam();
  const at::Tensor weight = RandomTensor({width}, 2, 0.3).add_(1);
  const RotaryTable table = ThreeAxes(9, {width, 0, 0});
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = RandomTensor({2, 9, 3, width}, 1).to(type),
                     grad = RandomTensor({2, 9, 3, width}, 3).to(type);
    const auto scattered = [](const at::Tensor& t) {
      return t.transpose(2, 3).contiguous().transpose(2, 3);
    };
    at::Tensor fused = at::empty_like(x), composed = scattered(at::empty_like(x));
    HeadNormRotary(x, weight.to(type), table, kEps, fused);
    HeadNormRotary(scattered(x), weight.to(type), table, kEps, composed);
    const double tolerance =
        type == at::kFloat ? 1e-5 : 4e-2;  // a bfloat16 near 4 is 1/64 from the next
    EXPECT_LT(MaxError(fused.to(at::kFloat), composed.to(at::kFloat)), tolerance);
    EXPECT_LT(
        MaxError(HeadNormRotaryBackward(grad, x, weight.to(type), table, kEps).to(at::kFloat),
                 HeadNormRotaryBackward(scattered(grad), scattered(x), weight.to(type), table, kEps)
                     .to(at::kFloat)),
        tolerance);
  }
}

TEST_P(HeadNormRotaryTest, IsCloseInBFloat16) {
  const int64_t width = GetParam();
  const at::Tensor x = RandomTensor({1, 9, 3, width}, 1).to(at::kBFloat16);
  const at::Tensor weight = RandomTensor({width}, 2, 0.3).add_(1).to(at::kBFloat16);
  const at::Tensor grad = RandomTensor({1, 9, 3, width}, 3).to(at::kBFloat16);
  const RotaryTable table = ThreeAxes(9, {width, 0, 0});
  const at::Tensor leaf = x.to(at::kDouble).requires_grad_();
  const at::Tensor expected = Definition(leaf, weight.to(at::kDouble), table);
  torch::autograd::backward({expected}, {grad.to(at::kDouble)});
  at::Tensor y = at::empty_like(x);
  HeadNormRotary(x, weight, table, kEps, y);
  const auto relative = [](const at::Tensor& a, const at::Tensor& e) {
    return ((a - e).norm() / e.norm()).item<double>();
  };
  EXPECT_LT(relative(y, expected), 5e-3);
  EXPECT_LT(relative(HeadNormRotaryBackward(grad, x, weight, table, kEps), leaf.grad()), 5e-3);
}

}  // namespace
}  // namespace blockswap::worker
