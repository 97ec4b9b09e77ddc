// SPDX-License-Identifier: Apache-2.0
#include "worker/model/linear.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <tuple>
#include <vector>

#include "tests/worker/model/tiny_model.h"
#include "worker/model/graph_op.h"

namespace blockswap::worker {
namespace {

using testing::RandomTensor;

double RelativeError(const at::Tensor& actual, const at::Tensor& expected) {
  return ((actual - expected).abs().max() / expected.square().mean().sqrt()).item<double>();
}

struct Operands {
  at::Tensor x, weight, bias, down, up, grad;
  double scale = 0.75;
};

Operands MakeOperands(at::ScalarType type = at::kFloat) {
  return {RandomTensor({2, 9, 16}, 1).to(type), RandomTensor({24, 16}, 2, 0.25).to(type),
          RandomTensor({24}, 3).to(type),       RandomTensor({3, 16}, 4, 0.25),
          RandomTensor({24, 3}, 5, 0.5),        RandomTensor({2, 9, 24}, 6).to(type)};
}

LoraModule ModuleOf(const Operands& operands) {
  return {operands.down,  operands.up, at::zeros_like(operands.down), at::zeros_like(operands.up),
          operands.scale, true};
}

struct Gradients {
  at::Tensor y, x, down, up;
};

// LibTorch's own autograd over the definition, in fp64.
Gradients Reference(const Operands& operands, bool adapted, bool gelu) {
  const auto leaf = [](const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(); };
  const at::Tensor x = leaf(operands.x), down = leaf(operands.down), up = leaf(operands.up);
  const at::Tensor input = gelu ? at::gelu(x, "tanh") : x;
  at::Tensor y = at::linear(input, operands.weight.to(at::kDouble), operands.bias.to(at::kDouble));
  if (adapted) y = y + at::matmul(at::matmul(input, down.t()), up.t()) * operands.scale;
  torch::autograd::backward({y}, {operands.grad.to(at::kDouble)});
  return {y.detach(), x.grad(), down.grad(), up.grad()};
}

Gradients Actual(const Operands& operands, LoraModule* adapter, bool gelu) {
  const at::Tensor x = operands.x.detach().requires_grad_();
  const LinearRef linear{WeightRef(&operands.weight), WeightRef(&operands.bias), adapter};
  const at::Tensor y =
      ApplyLinear(x, linear, gelu ? InputActivation::kGeluTanh : InputActivation::kNone);
  torch::autograd::backward({y}, {operands.grad});
  return {y.detach(), x.grad(), adapter == nullptr ? at::Tensor() : adapter->down_grad,
          adapter == nullptr ? at::Tensor() : adapter->up_grad};
}

class LinearTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Activations, LinearTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "gelu" : "plain"; });

TEST_P(LinearTest, FrozenMatchesAutograd) {
  const Operands operands = MakeOperands();
  const Gradients expected = Reference(operands, /*adapted=*/false, GetParam());
  const Gradients actual = Actual(operands, nullptr, GetParam());
  EXPECT_LT(RelativeError(actual.y, expected.y), 1e-5);
  EXPECT_LT(RelativeError(actual.x, expected.x), 1e-5);
}

TEST_P(LinearTest, AdaptedMatchesAutograd) {
  const Operands operands = MakeOperands();
  LoraModule adapter = ModuleOf(operands);
  const Gradients expected = Reference(operands, /*adapted=*/true, GetParam());
  const Gradients actual = Actual(operands, &adapter, GetParam());
  EXPECT_LT(RelativeError(actual.y, expected.y), 1e-5);
  EXPECT_LT(RelativeError(actual.x, expected.x), 1e-5);
  EXPECT_LT(RelativeError(actual.down, expected.down), 1e-5);
  EXPECT_LT(RelativeError(actual.up, expected.up), 1e-5);
}

TEST_P(LinearTest, AdaptedIsCloseInBFloat16) {
  const Operands operands = MakeOperands(at::kBFloat16);
  LoraModule adapter = ModuleOf(operands);
  const Gradients expected = Reference(operands, /*adapted=*/true, GetParam());
  const Gradients actual = Actual(operands, &adapter, GetParam());
  EXPECT_EQ(actual.y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(actual.down.scalar_type(), at::kFloat);
  for (const auto& [a, e] : {std::pair{actual.y, expected.y},
                             {actual.x, expected.x},
                             {actual.down, expected.down},
                             {actual.up, expected.up}}) {
    EXPECT_LT(((a - e).norm() / e.norm()).item<double>(), 1e-2);
  }
}

// Finite differences of the definition, without autograd on either side.
TEST(LinearGradientTest, MatchesFiniteDifferences) {
  Operands operands = MakeOperands();
  LoraModule adapter = ModuleOf(operands);
  const Gradients actual = Actual(operands, &adapter, /*gelu=*/true);
  const auto loss = [&] {
    return (Reference(operands, true, true).y * operands.grad.to(at::kDouble)).sum().item<double>();
  };
  const auto check = [&](at::Tensor& parameter, const at::Tensor& gradient) {
    for (int64_t i = 0; i < parameter.numel(); i += 7) {
      const at::Tensor original = parameter.clone();
      const double step = 1.0 / 64;
      parameter.view({-1})[i].add_(step);
      const double above = loss();
      parameter.view({-1})[i].sub_(2 * step);
      const double below = loss();
      parameter.copy_(original);
      EXPECT_NEAR(gradient.view({-1})[i].item<double>(), (above - below) / (2 * step), 5e-3) << i;
    }
  };
  check(operands.down, actual.down);
  check(operands.up, actual.up);
  check(operands.x, actual.x);
}

TEST(LinearGradientTest, AddsToWhatTheAdapterAlreadyHas) {
  const Operands operands = MakeOperands();
  LoraModule adapter = ModuleOf(operands);
  const Gradients expected = Reference(operands, true, false);
  adapter.up_grad.fill_(5);
  const Gradients actual = Actual(operands, &adapter, false);
  EXPECT_LT(RelativeError(actual.up, expected.up + 5), 1e-5);
}

TEST(LinearGradientTest, TrainsItsAdapterEvenWhenItsInputNeedsNoGradient) {
  const Operands operands = MakeOperands();
  LoraModule adapter = ModuleOf(operands);
  const LinearRef linear{WeightRef(&operands.weight), WeightRef(&operands.bias), &adapter};
  const at::Tensor y = ApplyLinear(operands.x, linear);
  torch::autograd::backward({y}, {operands.grad});
  EXPECT_LT(RelativeError(adapter.up_grad, Reference(operands, true, false).up), 1e-5);
}

TEST(LinearGradientTest, AnAdapterWithoutGradientBuffersStillActs) {
  const Operands operands = MakeOperands();
  LoraModule adapter = ModuleOf(operands);
  adapter.down_grad = adapter.up_grad = at::Tensor();
  const Gradients expected = Reference(operands, true, true),
                  actual = Actual(operands, &adapter, true);
  EXPECT_LT(RelativeError(actual.y, expected.y), 1e-5);
  EXPECT_LT(RelativeError(actual.x, expected.x), 1e-5);
}

TEST(LinearGradientTest, KeepsNoWeightAndWithoutAnAdapterNoInput) {
  const Operands operands = MakeOperands();
  const at::Tensor x = operands.x.detach().requires_grad_();
  const LinearRef linear{WeightRef(&operands.weight), WeightRef(&operands.bias), nullptr};
  const at::Tensor y = ApplyLinear(x, linear);
  for (const GraphNode& node : InspectGraph({y})) {
    for (const at::Tensor& saved : node.saved) EXPECT_FALSE(saved.defined()) << node.name;
  }
}

TEST(LinearGradientTest, RecordsNothingWithoutGradientMode) {
  const Operands operands = MakeOperands();
  LoraModule adapter = ModuleOf(operands);
  const LinearRef linear{WeightRef(&operands.weight), WeightRef(&operands.bias), &adapter};
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(ApplyLinear(operands.x.detach().requires_grad_(), linear).requires_grad());
}

// The gradients a trained weight and bias get, in buffers of type `type`.
std::pair<at::Tensor, at::Tensor> WeightGradients(const Operands& operands, bool gelu,
                                                  at::ScalarType type) {
  LinearRef linear{WeightRef(&operands.weight), WeightRef(&operands.bias), nullptr};
  const at::Tensor weight_grad = at::zeros(operands.weight.sizes(), type),
                   bias_grad = at::zeros(operands.bias.sizes(), type);
  linear.weight.set_gradient(weight_grad);
  linear.bias.set_gradient(bias_grad);
  const at::Tensor y = ApplyLinear(operands.x.detach().requires_grad_(), linear,
                                   gelu ? InputActivation::kGeluTanh : InputActivation::kNone);
  torch::autograd::backward({y}, {operands.grad});
  return {weight_grad, bias_grad};
}

TEST_P(LinearTest, TrainedWeightMatchesAutograd) {
  const Operands operands = MakeOperands();
  const auto leaf = [](const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(); };
  const at::Tensor weight = leaf(operands.weight), bias = leaf(operands.bias);
  const at::Tensor x = operands.x.to(at::kDouble);
  torch::autograd::backward({at::linear(GetParam() ? at::gelu(x, "tanh") : x, weight, bias)},
                            {operands.grad.to(at::kDouble)});
  const auto [weight_grad, bias_grad] = WeightGradients(operands, GetParam(), at::kFloat);
  EXPECT_LT(RelativeError(weight_grad, weight.grad()), 1e-5);
  EXPECT_LT(RelativeError(bias_grad, bias.grad()), 1e-5);
}

TEST_P(LinearTest, TrainedWeightIsCloseInBFloat16) {
  const auto [weight_grad, bias_grad] =
      WeightGradients(MakeOperands(at::kBFloat16), GetParam(), at::kBFloat16);
  const auto [exact_weight, exact_bias] = WeightGradients(MakeOperands(), GetParam(), at::kFloat);
  EXPECT_LT(((weight_grad - exact_weight).norm() / exact_weight.norm()).item<double>(), 1e-2);
  EXPECT_LT(((bias_grad - exact_bias).norm() / exact_bias.norm()).item<double>(), 1e-2);
}

}  // namespace
}  // namespace blockswap::worker
