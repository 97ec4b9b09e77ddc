// SPDX-License-Identifier: Apache-2.0
#include "worker/train/block_walk.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/model/tiny_model.h"
#include "worker/kernels/device_memory.h"

namespace blockswap::worker {
namespace {

using offload::PassKind;
using offload::PinPolicy;
using offload::TransferMode;
using testing::MakeHostDevice;
using testing::MakeInputs;
using testing::MakeRandomAdapter;
using testing::MakeSwapper;
using testing::MakeTinyCheckpoint;
using testing::Placement;
using testing::RandomTensor;
using testing::TinyCheckpoint;
using testing::TinyShape;

// Everything a training pass gives.
struct Outcome {
  at::Tensor output, hidden_states_grad, adapter_grad;
};

LossFunction GradientOf(const at::Tensor& gradient) {
  return [gradient](const at::Tensor&) -> absl::StatusOr<at::Tensor> { return gradient; };
}

at::Tensor OutputGradient(const ModelInputs& inputs, const ModelDescription& model) {
  const QwenImageConfig& config = model.qwen_image;
  return RandomTensor({inputs.hidden_states_BSC.size(0), inputs.hidden_states_BSC.size(1),
                       config.patch_size * config.patch_size * config.out_channels},
                      1003);
}

// Runs `passes` training passes; the outcome is the last one's, so that later passes start from
// whatever the ring holds.
Outcome RunTraining(const TinyCheckpoint& checkpoint, const ModelInputs& inputs,
                    const Placement& placement, int passes = 2) {
  const auto device = MakeHostDevice();
  const auto swapper = MakeSwapper(checkpoint, placement, device.get());
  const auto model = CreateModel(checkpoint.model, *checkpoint.source, at::kCPU);
  EXPECT_TRUE(model.ok()) << model.status().message();
  Adapter adapter = MakeRandomAdapter(checkpoint.model, /*with_gradients=*/true);
  const WalkContext context{model->get(), &checkpoint.model, swapper.get(), &adapter, at::kCPU};
  Outcome outcome;
  for (int pass = 0; pass < passes; ++pass) {
    adapter.gradients().zero_();
    EXPECT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
    auto result =
        WalkTraining(context, inputs, GradientOf(OutputGradient(inputs, checkpoint.model)),
                     /*want_hidden_states_grad=*/true, nullptr);
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (!result.ok()) break;
    outcome = {result->output, result->hidden_states_grad, adapter.gradients()};
  }
  return outcome;
}

void ExpectSameBits(const Outcome& actual, const Outcome& expected) {
  EXPECT_TRUE(at::equal(actual.output, expected.output));
  EXPECT_TRUE(at::equal(actual.hidden_states_grad, expected.hidden_states_grad));
  EXPECT_TRUE(at::equal(actual.adapter_grad, expected.adapter_grad));
}

class BlockWalkTest : public ::testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, BlockWalkTest, ::testing::Values(Dtype::kFloat32, Dtype::kBFloat16),
                         [](const auto& info) {
                           return info.param == Dtype::kFloat32 ? "fp32" : "bf16";
                         });

TEST_P(BlockWalkTest, EveryPlacementGivesTheBitsOfResidentBlocks) {
  const TinyCheckpoint checkpoint = MakeTinyCheckpoint({}, GetParam());
  const ModelInputs inputs = MakeInputs(checkpoint.model, 1, {{1, 3, 5}}, 7);
  const Outcome resident = RunTraining(checkpoint, inputs, {});
  EXPECT_GT(resident.adapter_grad.abs().max().item<float>(), 0);
  for (int blocks = 1; blocks <= 5; ++blocks) {
    for (int ring = 1; ring <= 3; ++ring) {
      for (PinPolicy pin : {PinPolicy::kAuto, PinPolicy::kNever}) {
        SCOPED_TRACE(::testing::Message() << blocks << " streamed, ring " << ring);
        ExpectSameBits(RunTraining(checkpoint, inputs, {blocks, ring, TransferMode::kH2dOnly, pin}),
                       resident);
      }
    }
    SCOPED_TRACE(::testing::Message() << blocks << " exchanged");
    ExpectSameBits(RunTraining(checkpoint, inputs, {blocks, 1, TransferMode::kExchange}), resident);
  }
}

TEST_P(BlockWalkTest, BatchesMasksAndReferenceImagesGiveTheSameBitsStreamed) {
  TinyShape shape;
  shape.zero_cond_t = true;
  const TinyCheckpoint checkpoint = MakeTinyCheckpoint(shape, GetParam());
  ModelInputs inputs = MakeInputs(checkpoint.model, 2, {{1, 3, 5}, {1, 4, 2}}, 5);
  inputs.encoder_mask_BT = at::ones({2, 5}, at::kLong);
  inputs.encoder_mask_BT.select(0, 0).narrow(0, 2, 3).zero_();
  ExpectSameBits(RunTraining(checkpoint, inputs, {5, 2}), RunTraining(checkpoint, inputs, {}));
}

TEST_P(BlockWalkTest, HostModulationGivesTheSameBitsForEveryPlacement) {
  TinyShape shape;
  shape.host_modulation = true;
  shape.zero_cond_t = true;
  const TinyCheckpoint checkpoint = MakeTinyCheckpoint(shape, GetParam());
  const ModelInputs inputs = MakeInputs(checkpoint.model, 2, {{1, 3, 5}, {1, 4, 2}}, 5);
  const Outcome resident = RunTraining(checkpoint, inputs, {});
  for (const Placement& placement :
       {Placement{5, 1}, Placement{3, 2}, Placement{4, 1, TransferMode::kExchange}}) {
    ExpectSameBits(RunTraining(checkpoint, inputs, placement), resident);
  }
}

// The adapters on the modulation train through it, too: their gradients are part of adapter_grad.
TEST_P(BlockWalkTest, HostModulationAgreesWithTheDevice) {
  TinyShape shape;
  const TinyCheckpoint on_device = MakeTinyCheckpoint(shape, GetParam());
  shape.host_modulation = true;
  const TinyCheckpoint on_host = MakeTinyCheckpoint(shape, GetParam());
  const ModelInputs inputs = MakeInputs(on_host.model, 2, {{1, 3, 5}}, 7);
  const Outcome host = RunTraining(on_host, inputs, {3, 2});
  const Outcome device = RunTraining(on_device, inputs, {3, 2});
  const double tolerance = GetParam() == Dtype::kFloat32 ? 1e-5 : 3e-2;
  const auto expect_close = [&](const at::Tensor& actual, const at::Tensor& expected) {
    const double rms = expected.to(at::kDouble).square().mean().sqrt().item<double>();
    EXPECT_GT(rms, 0);
    const at::Tensor error = (actual - expected).to(at::kDouble).square().mean().sqrt();
    EXPECT_LT(error.item<double>(), tolerance * rms);
  };
  expect_close(host.output, device.output);
  expect_close(host.hidden_states_grad, device.hidden_states_grad);
  expect_close(host.adapter_grad, device.adapter_grad);
}

// F001: small test tensors stayed right when slots were given away too early; blocks of real width
// showed it.
TEST_P(BlockWalkTest, WideBlocksHaveTheGradientsOfResidentOnes) {
  TinyShape shape;
  shape.layers = 3;
  shape.heads = 12;
  shape.head_dim = 128;
  shape.axes = {16, 56, 56};
  shape.text_width = 64;
  const TinyCheckpoint checkpoint = MakeTinyCheckpoint(shape, GetParam());
  const ModelInputs inputs = MakeInputs(checkpoint.model, 1, {{1, 4, 4}}, 8);
  const Outcome resident = RunTraining(checkpoint, inputs, {}, 1);
  // The noise floor on the CPU is zero.
  ExpectSameBits(RunTraining(checkpoint, inputs, {}, 1), resident);
  for (const Placement& placement :
       {Placement{2, 1}, Placement{2, 2}, Placement{2, 1, TransferMode::kExchange}}) {
    ExpectSameBits(RunTraining(checkpoint, inputs, placement), resident);
  }
}

// A slow lane makes every visit wait: a read before its copy is done would change bits here.
TEST_P(BlockWalkTest, ASlowLinkChangesNoBit) {
  const TinyCheckpoint checkpoint = MakeTinyCheckpoint({}, GetParam());
  const ModelInputs inputs = MakeInputs(checkpoint.model, 1, {{1, 3, 5}}, 7);
  const Outcome resident = RunTraining(checkpoint, inputs, {});
  offload::HostDeviceOptions slow;
  slow.h2d_bytes_per_second = 50e6;
  const auto device = MakeHostDevice(slow);
  const auto swapper = MakeSwapper(checkpoint, {5, 2}, device.get());
  const auto model = CreateModel(checkpoint.model, *checkpoint.source, at::kCPU);
  Adapter adapter = MakeRandomAdapter(checkpoint.model, true);
  const WalkContext context{model->get(), &checkpoint.model, swapper.get(), &adapter, at::kCPU};
  ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
  const auto result = WalkTraining(
      context, inputs, GradientOf(OutputGradient(inputs, checkpoint.model)), true, nullptr);
  ASSERT_TRUE(result.ok());
  ExpectSameBits({result->output, result->hidden_states_grad, adapter.gradients()}, resident);
}

TEST_P(BlockWalkTest, AForwardPassAloneGivesTheOutputOfTraining) {
  const TinyCheckpoint checkpoint = MakeTinyCheckpoint({}, GetParam());
  const ModelInputs inputs = MakeInputs(checkpoint.model, 1, {{1, 3, 5}}, 7);
  const auto device = MakeHostDevice();
  const auto swapper = MakeSwapper(checkpoint, {4, 2}, device.get());
  const auto model = CreateModel(checkpoint.model, *checkpoint.source, at::kCPU);
  const Adapter adapter = MakeRandomAdapter(checkpoint.model, /*with_gradients=*/false);
  const WalkContext context{model->get(), &checkpoint.model, swapper.get(), &adapter, at::kCPU};
  ASSERT_TRUE(swapper->BeginPass(PassKind::kForwardOnly).ok());
  const auto result = WalkForward(context, inputs);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_TRUE(at::equal(result->output, RunTraining(checkpoint, inputs, {}).output));
  EXPECT_FALSE(result->output.requires_grad());
}

class BlockWalkFaultTest : public ::testing::Test {
 protected:
  BlockWalkFaultTest()
      : checkpoint_(MakeTinyCheckpoint({}, Dtype::kFloat32)),
        inputs_(MakeInputs(checkpoint_.model, 1, {{1, 3, 5}}, 7)),
        adapter_(MakeRandomAdapter(checkpoint_.model, true)) {}

  const TinyCheckpoint checkpoint_;
  const ModelInputs inputs_;
  Adapter adapter_;
};

TEST_F(BlockWalkFaultTest, GradientsOfTwoPassesAddUp) {
  const auto device = MakeHostDevice();
  const auto swapper = MakeSwapper(checkpoint_, {3, 2}, device.get());
  const auto model = CreateModel(checkpoint_.model, *checkpoint_.source, at::kCPU);
  const WalkContext context{model->get(), &checkpoint_.model, swapper.get(), &adapter_, at::kCPU};
  at::Tensor once;
  for (int pass = 0; pass < 2; ++pass) {
    ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
    ASSERT_TRUE(WalkTraining(context, inputs_,
                             GradientOf(OutputGradient(inputs_, checkpoint_.model)), false, nullptr)
                    .ok());
    if (pass == 0) once = adapter_.gradients().clone();
  }
  const at::Tensor twice = once.mul(2);
  const double rms = twice.square().mean().sqrt().item<double>();
  EXPECT_LT((adapter_.gradients() - twice).abs().max().item<double>(), 1e-5 * rms);
}

TEST_F(BlockWalkFaultTest, StopsBetweenBlocksInMidBackwardAndGoesOnAfterwards) {
  const auto device = MakeHostDevice();
  const auto swapper = MakeSwapper(checkpoint_, {4, 2}, device.get());
  const auto model = CreateModel(checkpoint_.model, *checkpoint_.source, at::kCPU);
  const WalkContext context{model->get(), &checkpoint_.model, swapper.get(), &adapter_, at::kCPU};
  const LossFunction loss = GradientOf(OutputGradient(inputs_, checkpoint_.model));
  for (int stop_at : {1, 4, 7, 9, 12}) {
    int visits = 0;
    ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
    const auto stopped = WalkTraining(context, inputs_, loss, true, [&] {
      return ++visits == stop_at ? absl::CancelledError("stop") : absl::OkStatus();
    });
    EXPECT_EQ(stopped.status(), absl::CancelledError("stop"));
    EXPECT_EQ(visits, stop_at);
  }
  adapter_.gradients().zero_();
  ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
  const auto result = WalkTraining(context, inputs_, loss, true, nullptr);
  ASSERT_TRUE(result.ok()) << result.status().message();
  ExpectSameBits({result->output, result->hidden_states_grad, adapter_.gradients()},
                 RunTraining(checkpoint_, inputs_, {}));
}

TEST_F(BlockWalkFaultTest, ABudgetTooSmallForTheActivationsIsResourceExhausted) {
  const auto device = MakeHostDevice();
  const CountedHostMemory counted(&device->ledger());
  const auto swapper = MakeSwapper(checkpoint_, {4, 2}, device.get());
  const auto model = CreateModel(checkpoint_.model, *checkpoint_.source, at::kCPU);
  const WalkContext context{model->get(), &checkpoint_.model, swapper.get(), &adapter_, at::kCPU};
  const LossFunction loss = GradientOf(OutputGradient(inputs_, checkpoint_.model));
  const int64_t before = device->ledger().Snapshot().total_bytes;
  const int64_t budget = before + 48 * 1024;
  device->ledger().SetBudget(budget);
  ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
  const auto refused = WalkTraining(context, inputs_, loss, true, nullptr);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              ::testing::HasSubstr(std::to_string(budget)));
  // Nothing stays charged, and with a larger budget the same swapper goes on.
  EXPECT_EQ(device->ledger().Snapshot().total_bytes, before);
  device->ledger().SetBudget(0);
  adapter_.gradients().zero_();
  ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
  const auto result = WalkTraining(context, inputs_, loss, true, nullptr);
  ASSERT_TRUE(result.ok()) << result.status().message();
  ExpectSameBits({result->output, result->hidden_states_grad, adapter_.gradients()},
                 RunTraining(checkpoint_, inputs_, {}));
}

TEST_F(BlockWalkFaultTest, AnErrorOfTheLossEndsTheWalk) {
  const auto device = MakeHostDevice();
  const auto swapper = MakeSwapper(checkpoint_, {4, 2}, device.get());
  const auto model = CreateModel(checkpoint_.model, *checkpoint_.source, at::kCPU);
  const WalkContext context{model->get(), &checkpoint_.model, swapper.get(), &adapter_, at::kCPU};
  ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
  const auto result = WalkTraining(
      context, inputs_,
      [](const at::Tensor&) -> absl::StatusOr<at::Tensor> {
        return absl::DataLossError("no loss");
      },
      false, nullptr);
  EXPECT_EQ(result.status(), absl::DataLossError("no loss"));
  EXPECT_EQ(adapter_.gradients().abs().max().item<float>(), 0);
}

// F082: peaks that creep up with many shapes. Twelve shapes in random order, three passes over all:
// the first pass has shown the worst.
TEST_F(BlockWalkFaultTest, ManyShapesInAnyOrderPeakInTheFirstPassOverThem) {
  const auto device = MakeHostDevice();
  const CountedHostMemory counted(&device->ledger());
  const auto swapper = MakeSwapper(checkpoint_, {4, 2}, device.get());
  const auto model = CreateModel(checkpoint_.model, *checkpoint_.source, at::kCPU);
  const WalkContext context{model->get(), &checkpoint_.model, swapper.get(), &adapter_, at::kCPU};
  std::vector<std::pair<int64_t, int64_t>> shapes;  // rows of image tokens, text tokens
  for (int64_t rows = 2; rows < 6; ++rows) {
    for (const int64_t text : {2, 5, 9}) shapes.emplace_back(rows, text);
  }
  ASSERT_EQ(shapes.size(), 12u);
  std::mt19937 random(20261130);
  int64_t first_peak = 0;
  for (int pass = 0; pass < 3; ++pass) {
    std::shuffle(shapes.begin(), shapes.end(), random);
    for (const auto& [rows, text] : shapes) {
      const ModelInputs inputs = MakeInputs(checkpoint_.model, 1, {{1, rows, 3}}, text);
      ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
      ASSERT_TRUE(WalkTraining(context, inputs,
                               GradientOf(OutputGradient(inputs, checkpoint_.model)), false,
                               nullptr)
                      .ok());
    }
    if (pass == 0) first_peak = device->ledger().Snapshot().total_peak_bytes;
  }
  EXPECT_EQ(device->ledger().Snapshot().total_peak_bytes, first_peak);
}

// Items that walk together share uploads, kept graphs and inputs on the host; their gradients are
// those of one walk after another.
TEST_F(BlockWalkFaultTest, WalkingTogetherGivesTheGradientsOfOneAfterAnother) {
  const auto device = MakeHostDevice();
  const auto swapper = MakeSwapper(checkpoint_, {4, 2}, device.get());
  const auto model = CreateModel(checkpoint_.model, *checkpoint_.source, at::kCPU);
  BoundaryStore boundaries(device.get(), /*lock=*/false);
  WalkContext context{model->get(), &checkpoint_.model, swapper.get(), &adapter_, at::kCPU};
  context.boundaries = &boundaries;
  const ModelInputs other = MakeInputs(checkpoint_.model, 2, {{1, 2, 4}}, 3);
  std::vector<WalkItem> items;
  for (const ModelInputs* inputs : {&inputs_, &other, &inputs_}) {
    items.push_back({inputs, GradientOf(OutputGradient(*inputs, checkpoint_.model))});
  }
  at::Tensor one_after_another;
  int64_t together = 0;
  const int64_t start = swapper->stats().h2d_bytes;
  adapter_.gradients().zero_();
  for (const WalkItem& item : items) {
    ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
    ASSERT_TRUE(WalkTraining(context, *item.inputs, item.loss, false, nullptr).ok());
  }
  one_after_another = adapter_.gradients().clone();
  const int64_t apart = swapper->stats().h2d_bytes - start;
  for (int pass = 0; pass < 2; ++pass) {
    adapter_.gradients().zero_();
    ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
    const int64_t before = swapper->stats().h2d_bytes;
    const auto times = WalkTrainingTogether(context, items, nullptr);
    ASSERT_TRUE(times.ok()) << times.status();
    EXPECT_TRUE(at::equal(adapter_.gradients(), one_after_another));
    together = swapper->stats().h2d_bytes - before;
  }
  EXPECT_GT(together, 0);
  EXPECT_EQ(together * 3, apart);
}

// Steady state: what one step leaves behind would grow over a run (F078: memory flat).
TEST_F(BlockWalkFaultTest, LeavesNothingBehindAfterAStep) {
  const auto device = MakeHostDevice();
  const CountedHostMemory counted(&device->ledger());
  const auto swapper = MakeSwapper(checkpoint_, {4, 2}, device.get());
  const auto model = CreateModel(checkpoint_.model, *checkpoint_.source, at::kCPU);
  const WalkContext context{model->get(), &checkpoint_.model, swapper.get(), &adapter_, at::kCPU};
  const LossFunction loss = GradientOf(OutputGradient(inputs_, checkpoint_.model));
  const int64_t before = device->ledger().Snapshot().total_bytes;
  int64_t peak = 0;
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(swapper->BeginPass(PassKind::kTraining).ok());
    ASSERT_TRUE(WalkTraining(context, inputs_, loss, false, nullptr).ok());
    const offload::MemorySnapshot snapshot = device->ledger().Snapshot();
    EXPECT_EQ(snapshot.total_bytes, before);
    if (step == 1) peak = snapshot.total_peak_bytes;
  }
  EXPECT_EQ(device->ledger().Snapshot().total_peak_bytes, peak);
}

}  // namespace
}  // namespace blockswap::worker
