// SPDX-License-Identifier: Apache-2.0
#include "worker/model/double_block.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/worker/model/tiny_model.h"
#include "worker/model/graph_op.h"

namespace blockswap::worker {
namespace {

using testing::RandomTensor;

constexpr int64_t kHeads = 3, kHeadDim = 8, kDim = kHeads * kHeadDim;
constexpr double kEps = 1e-6;

// One linear with its adapter, as frozen tensors and as fp64 leaves of the reference.
struct TestLinear {
  at::Tensor weight, bias;
  LoraModule adapter;
  at::Tensor down_leaf, up_leaf;

  LinearRef Ref() const { return {WeightRef(&weight), WeightRef(&bias), &adapter}; }
  at::Tensor Reference(const at::Tensor& x) const {
    return at::linear(x, weight.to(at::kDouble), bias.to(at::kDouble)) +
           at::matmul(at::matmul(x, down_leaf.t()), up_leaf.t()) * adapter.scale;
  }
};

TestLinear MakeLinear(int64_t in, int64_t out, int64_t sample) {
  TestLinear linear;
  linear.weight = RandomTensor({out, in}, sample, 0.2);
  linear.bias = RandomTensor({out}, sample + 1, 0.2);
  linear.adapter = {RandomTensor({2, in}, sample + 2, 0.2),
                    RandomTensor({out, 2}, sample + 3, 0.3),
                    at::zeros({2, in}),
                    at::zeros({out, 2}),
                    0.75,
                    true};
  linear.down_leaf = linear.adapter.down.to(at::kDouble).requires_grad_();
  linear.up_leaf = linear.adapter.up.to(at::kDouble).requires_grad_();
  return linear;
}

struct TestStream {
  std::map<std::string, TestLinear> linears;
  at::Tensor query_norm, key_norm;

  explicit TestStream(int64_t sample) {
    const std::map<std::string, std::pair<int64_t, int64_t>> sizes = {
        {"q", {kDim, kDim}},      {"k", {kDim, kDim}},      {"v", {kDim, kDim}},
        {"o", {kDim, kDim}},      {"in", {kDim, 4 * kDim}}, {"out", {4 * kDim, kDim}},
        {"mod", {kDim, 6 * kDim}}};
    for (const auto& [name, size] : sizes)
      linears[name] = MakeLinear(size.first, size.second, sample += 10);
    query_norm = RandomTensor({kHeadDim}, sample + 5, 0.3).add_(1);
    key_norm = RandomTensor({kHeadDim}, sample + 6, 0.3).add_(1);
  }
  StreamWeights Weights() const {
    return {linears.at("q").Ref(),   linears.at("k").Ref(),  linears.at("v").Ref(),
            linears.at("o").Ref(),   linears.at("in").Ref(), linears.at("out").Ref(),
            linears.at("mod").Ref(), WeightRef(&query_norm), WeightRef(&key_norm)};
  }
};

// The block written down plainly in fp64: every token has its own modulation row, attention is a
// softmax over a matrix.
at::Tensor PlainNorm(const at::Tensor& x) {
  const at::Tensor centred = x - x.mean(-1, true);
  return centred * at::rsqrt(centred.square().mean(-1, true) + kEps);
}

at::Tensor PlainHeads(const at::Tensor& x, const at::Tensor& norm, const RotaryTable& table) {
  const at::Tensor heads = x.unflatten(-1, {kHeads, kHeadDim});
  const at::Tensor normed =
      heads * at::rsqrt(heads.square().mean(-1, true) + kEps) * norm.to(at::kDouble);
  const at::Tensor turns =
      at::complex(table.cos_LP, table.sin_LP).to(at::kComplexDouble).unsqueeze(1);
  return at::view_as_real(at::view_as_complex(normed.unflatten(-1, {-1, 2}).contiguous()) * turns)
      .flatten(-2);
}

struct PlainStream {
  const TestStream& weights;
  at::Tensor x;     // [B, L, D]
  at::Tensor rows;  // [B, L, 6, D]
  RotaryTable table;
  at::Tensor Row(int64_t row) const { return rows.select(2, row); }
};

std::vector<at::Tensor> PlainBlock(const PlainStream& text, const PlainStream& image,
                                   const at::Tensor& attended) {
  std::vector<at::Tensor> q, k, v;
  for (const PlainStream* s : {&text, &image}) {
    const at::Tensor h = PlainNorm(s->x) * (1 + s->Row(kScale1)) + s->Row(kShift1);
    q.push_back(
        PlainHeads(s->weights.linears.at("q").Reference(h), s->weights.query_norm, s->table));
    k.push_back(PlainHeads(s->weights.linears.at("k").Reference(h), s->weights.key_norm, s->table));
    v.push_back(s->weights.linears.at("v").Reference(h).unflatten(-1, {kHeads, kHeadDim}));
  }
  const at::Tensor scores =
      at::einsum("blhd,bmhd->bhlm", {at::cat(q, 1), at::cat(k, 1)}) / std::sqrt(double{kHeadDim});
  const at::Tensor masked = scores.masked_fill(attended.logical_not().unsqueeze(1).unsqueeze(1),
                                               -std::numeric_limits<double>::infinity());
  const at::Tensor joint =
      at::einsum("bhlm,bmhd->blhd", {at::softmax(masked, -1), at::cat(v, 1)}).flatten(-2);
  std::vector<at::Tensor> outputs;
  int64_t first = 0;
  for (const PlainStream* s : {&text, &image}) {
    const at::Tensor own = joint.narrow(1, first, s->x.size(1));
    first += s->x.size(1);
    const at::Tensor y = s->x + s->Row(kGate1) * s->weights.linears.at("o").Reference(own);
    const at::Tensor h = PlainNorm(y) * (1 + s->Row(kScale2)) + s->Row(kShift2);
    const at::Tensor mlp = s->weights.linears.at("out").Reference(
        at::gelu(s->weights.linears.at("in").Reference(h), "tanh"));
    outputs.push_back(y + s->Row(kGate2) * mlp);
  }
  return outputs;
}

struct BlockCase {
  const char* name;
  int64_t batch, text, image;
  TimeGroups image_groups;
  bool masked;
  friend void PrintTo(const BlockCase& value, std::ostream* out) { *out << value.name; }
};

class DoubleBlockTest : public ::testing::TestWithParam<BlockCase> {
 protected:
  const TestStream text_{1000}, image_{2000};
};
INSTANTIATE_TEST_SUITE_P(Cases, DoubleBlockTest,
                         ::testing::Values(BlockCase{"single", 1, 4, 6, {6}, false},
                                           BlockCase{"batch_with_padding", 3, 5, 6, {6}, true},
                                           BlockCase{"two_times", 1, 4, 7, {4, 3}, false},
                                           BlockCase{
                                               "two_times_in_a_batch", 2, 5, 7, {3, 4}, true}),
                         [](const auto& info) { return info.param.name; });

RotaryTable MakeTable(int64_t tokens) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < tokens; ++i) positions.push_back(i - 2);
  return MakeRotaryTable({positions, positions, positions}, {4, 2, 2}, 10000, at::kCPU);
}

at::Tensor PerToken(const at::Tensor& rows_BGKD, const TimeGroups& groups) {
  std::vector<at::Tensor> parts;
  for (size_t g = 0; g < groups.size(); ++g) {
    parts.push_back(
        rows_BGKD.narrow(1, static_cast<int64_t>(g), 1).expand({-1, groups[g], -1, -1}));
  }
  return at::cat(parts, 1);
}

void ExpectClose(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  const double rms = expected.square().mean().sqrt().item<double>();
  EXPECT_LE((actual - expected).abs().max().item<double>(), 3e-5 * rms) << what;
}

TEST_P(DoubleBlockTest, MatchesThePlainFormulaAndItsGradients) {
  const BlockCase& c = GetParam();
  const at::Tensor time =
      RandomTensor({c.batch, static_cast<int64_t>(c.image_groups.size()), kDim}, 1);
  const at::Tensor text_time = time.narrow(1, 0, 1).contiguous();
  const at::Tensor x = RandomTensor({c.batch, c.image, kDim}, 2),
                   y = RandomTensor({c.batch, c.text, kDim}, 3);
  const at::Tensor x_grad = RandomTensor({c.batch, c.image, kDim}, 4),
                   y_grad = RandomTensor({c.batch, c.text, kDim}, 5);
  at::Tensor attended = at::ones({c.batch, c.text + c.image}, at::kBool);
  if (c.masked) attended.select(0, 0).narrow(0, 2, c.text - 2).fill_(false);

  const RotaryTable table = MakeTable(c.text + c.image);
  const at::Tensor x_wide = x.to(at::kDouble).requires_grad_(),
                   y_wide = y.to(at::kDouble).requires_grad_();
  const auto rows = [](const TestStream& s, const at::Tensor& t) {
    return s.linears.at("mod").Reference(t.to(at::kDouble)).unflatten(-1, {6, kDim});
  };
  const auto expected = PlainBlock(
      {text_, y_wide, PerToken(rows(text_, text_time), {c.text}), table.Tokens(0, c.text)},
      {image_, x_wide, PerToken(rows(image_, time), c.image_groups), table.Tokens(c.text, c.image)},
      attended);
  torch::autograd::backward({expected[0], expected[1]},
                            {y_grad.to(at::kDouble), x_grad.to(at::kDouble)});

  DoubleBlockSetting setting;
  setting.attention.num_heads = kHeads;
  setting.attention.table = table;
  if (c.masked) {
    setting.attention.key_bias_B11L =
        at::zeros({c.batch, c.text + c.image})
            .masked_fill_(attended.logical_not(), -std::numeric_limits<double>::infinity())
            .unsqueeze(1)
            .unsqueeze(1);
  }
  const at::Tensor x_leaf = x.detach().requires_grad_(), y_leaf = y.detach().requires_grad_();
  const DoubleStreams actual =
      ForwardDoubleBlock({x_leaf, y_leaf}, image_.Weights(), text_.Weights(),
                         MakeModulation(time, image_.linears.at("mod").Ref(), kNumModulationRows,
                                        c.image_groups, nullptr),
                         MakeModulation(text_time, text_.linears.at("mod").Ref(),
                                        kNumModulationRows, {c.text}, nullptr),
                         setting);
  torch::autograd::backward({actual.image_BSD, actual.text_BTD}, {x_grad, y_grad});

  ExpectClose(actual.image_BSD, expected[1], "image");
  ExpectClose(actual.text_BTD, expected[0], "text");
  ExpectClose(x_leaf.grad(), x_wide.grad(), "image gradient");
  ExpectClose(y_leaf.grad(), y_wide.grad(), "text gradient");
  for (const auto& [stream, name] : {std::pair{&text_, "text "}, {&image_, "image "}}) {
    for (const auto& [key, linear] : stream->linears) {
      ExpectClose(linear.adapter.down_grad, linear.down_leaf.grad(), name + key + " down");
      ExpectClose(linear.adapter.up_grad, linear.up_leaf.grad(), name + key + " up");
    }
  }
}

TEST_P(DoubleBlockTest, CachedModulationGivesTheSameBits) {
  const BlockCase& c = GetParam();
  const at::Tensor time =
      RandomTensor({c.batch, static_cast<int64_t>(c.image_groups.size()), kDim}, 1);
  const at::Tensor x = RandomTensor({c.batch, c.image, kDim}, 2);
  const LinearRef linear = image_.linears.at("mod").Ref();
  at::Tensor cached;
  std::vector<at::Tensor> outputs, gradients;
  for (int call = 0; call < 2; ++call) {
    image_.linears.at("mod").adapter.up_grad.zero_();
    const at::Tensor leaf = x.detach().requires_grad_();
    const Modulation modulation =
        MakeModulation(time, linear, kNumModulationRows, c.image_groups, &cached);
    const at::Tensor y = ModulatedNorm(leaf, modulation, kShift1, kScale1, kEps);
    torch::autograd::backward({y}, {x});
    outputs.push_back(y.detach());
    gradients.push_back(image_.linears.at("mod").adapter.up_grad.clone());
  }
  EXPECT_TRUE(cached.defined());
  EXPECT_FALSE(cached.requires_grad());
  EXPECT_TRUE(at::equal(outputs[0], outputs[1]));
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
  EXPECT_GT(gradients[0].abs().max().item<float>(), 0);
}

TEST_P(DoubleBlockTest, WithoutATextContinuationTheImageIsTheSame) {
  const BlockCase& c = GetParam();
  const at::Tensor time =
      RandomTensor({c.batch, static_cast<int64_t>(c.image_groups.size()), kDim}, 1);
  const at::Tensor text_time = time.narrow(1, 0, 1).contiguous();
  const at::Tensor x = RandomTensor({c.batch, c.image, kDim}, 2),
                   y = RandomTensor({c.batch, c.text, kDim}, 3);
  const at::NoGradGuard no_grad;
  DoubleBlockSetting setting;
  setting.attention.num_heads = kHeads;
  setting.attention.table = MakeTable(c.text + c.image);
  std::vector<at::Tensor> images;
  for (bool continues : {true, false}) {
    setting.text_continues = continues;
    images.push_back(ForwardDoubleBlock({x, y}, image_.Weights(), text_.Weights(),
                                        MakeModulation(time, image_.linears.at("mod").Ref(),
                                                       kNumModulationRows, c.image_groups, nullptr),
                                        MakeModulation(text_time, text_.linears.at("mod").Ref(),
                                                       kNumModulationRows, {c.text}, nullptr),
                                        setting)
                         .image_BSD);
  }
  EXPECT_TRUE(at::equal(images[0], images[1]));
}

}  // namespace
}  // namespace blockswap::worker
