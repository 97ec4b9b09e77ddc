// SPDX-License-Identifier: Apache-2.0
#include "worker/model/qwen_image.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/worker/model/tiny_model.h"
#include "worker/kernels/device_memory.h"
#include "worker/kernels/torch_boundary.h"
#include "worker/model/graph_op.h"

namespace blockswap::worker {
namespace {

using offload::Direction;
using offload::PassKind;
using ::testing::HasSubstr;
using testing::MakeHostDevice;
using testing::MakeInputs;
using testing::MakeRandomAdapter;
using testing::MakeSwapper;
using testing::MakeTinyCheckpoint;
using testing::TinyCheckpoint;

class QwenImageTest : public ::testing::Test {
 protected:
  QwenImageTest()
      : checkpoint_(MakeTinyCheckpoint({}, Dtype::kFloat32)),
        inputs_(MakeInputs(checkpoint_.model, 1, {{1, 3, 5}}, 7)),
        device_(MakeHostDevice()),
        swapper_(MakeSwapper(checkpoint_, {4, 2}, device_.get())),
        adapter_(MakeRandomAdapter(checkpoint_.model, true)) {
    auto model = CreateModel(checkpoint_.model, *checkpoint_.source, at::kCPU);
    EXPECT_TRUE(model.ok()) << model.status().message();
    model_ = *std::move(model);
    EXPECT_TRUE(swapper_->BeginPass(PassKind::kForwardOnly).ok());
  }

  BlockWeights Weights(const offload::BlockLease& lease, int block) const {
    return WeightsOfLease(lease, checkpoint_.model.blocks[static_cast<size_t>(block)],
                          Dtype::kFloat32, at::kCPU);
  }

  const TinyCheckpoint checkpoint_;
  const ModelInputs inputs_;
  const std::unique_ptr<offload::HostDevice> device_;
  const std::unique_ptr<offload::BlockSwapper> swapper_;
  Adapter adapter_;
  std::unique_ptr<Model> model_;
};

// F078: a weight that autograd keeps would be overwritten by the next block, and would pin its
// slot.
TEST_F(QwenImageTest, NoNodeOfABlocksGraphKeepsABaseWeight) {
  const auto conditioning = model_->Condition(inputs_);
  Streams streams = model_->Embed(inputs_);
  for (at::Tensor& stream : streams) stream = stream.detach().requires_grad_();
  auto lease = swapper_->Acquire(0, Direction::kForward);
  ASSERT_TRUE(lease.ok());
  const BlockWeights weights = Weights(*lease, 0);
  std::vector<const void*> storages;
  for (const WeightRef& weight : weights.tensors) storages.push_back(weight.Get().const_data_ptr());
  const Streams next = model_->ForwardBlock(0, streams, *conditioning, weights, adapter_.block(0));

  const std::vector<GraphNode> graph = InspectGraph(next);
  int hand_written = 0;
  for (const GraphNode& node : graph) {
    // Everything else in the graph is the accumulation into the two streams.
    EXPECT_TRUE(node.hand_written || node.name == "torch::autograd::AccumulateGrad") << node.name;
    hand_written += node.hand_written;
    for (const at::Tensor& saved : node.saved) {
      if (!saved.defined()) continue;
      for (size_t i = 0; i < storages.size(); ++i) {
        EXPECT_FALSE(saved.storage().data() == storages[i]) << node.name << " keeps tensor " << i;
      }
    }
  }
  EXPECT_GT(hand_written, 20);
}

TEST_F(QwenImageTest, TheHeadsGraphKeepsNoWeightEither) {
  const auto conditioning = model_->Condition(inputs_);
  Streams streams = model_->Embed(inputs_);
  for (at::Tensor& stream : streams) stream = stream.detach().requires_grad_();
  for (const GraphNode& node : InspectGraph({model_->Head(streams, *conditioning)})) {
    EXPECT_TRUE(node.hand_written || node.name == "torch::autograd::AccumulateGrad") << node.name;
  }
}

TEST_F(QwenImageTest, WeightsAreViewsOfTheLeaseAndRefusedAfterIt) {
  auto lease = swapper_->Acquire(2, Direction::kForward);
  ASSERT_TRUE(lease.ok());
  const BlockWeights weights = Weights(*lease, 2);
  const at::Tensor first = weights.tensors[0].Get(), again = weights.tensors[0].Get();
  EXPECT_EQ(first.const_data_ptr(), again.const_data_ptr());
  EXPECT_EQ(first.sizes(), at::IntArrayRef(checkpoint_.model.blocks[2].tensors[0].shape));
  at::Tensor stored = at::empty_like(first);
  ASSERT_TRUE(
      checkpoint_.source
          ->Read(checkpoint_.model.blocks[2].tensors[0].name, Dtype::kFloat32,
                 absl::MakeSpan(static_cast<std::byte*>(stored.data_ptr()), stored.nbytes()))
          .ok());
  EXPECT_TRUE(at::equal(first, stored));
  lease->Release();
  const absl::Status status = RunContained([&] {
    weights.tensors[0].Get();
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("lease"));
}

TEST_F(QwenImageTest, PaddedTextChangesNothingForTheImage) {
  const auto output = [&](const ModelInputs& inputs) {
    const at::NoGradGuard no_grad;
    const auto conditioning = model_->Condition(inputs);
    EXPECT_TRUE(swapper_->BeginPass(PassKind::kForwardOnly).ok());
    Streams streams = model_->Embed(inputs);
    for (int block = 0; block < model_->num_blocks(); ++block) {
      const auto lease = swapper_->Acquire(block, Direction::kForward);
      streams = model_->ForwardBlock(block, streams, *conditioning, Weights(*lease, block),
                                     adapter_.block(block));
    }
    return model_->Head(streams, *conditioning);
  };
  ModelInputs padded = inputs_;
  padded.encoder_hidden_states_BTJ =
      at::cat({inputs_.encoder_hidden_states_BTJ, testing::RandomTensor({1, 3, 24}, 9)}, 1);
  padded.encoder_mask_BT = at::ones({1, 10}, at::kLong);
  padded.encoder_mask_BT.narrow(1, 7, 3).zero_();
  const at::Tensor plain = output(inputs_), masked = output(padded);
  EXPECT_LT((plain - masked).abs().max().item<double>(),
            1e-4 * plain.square().mean().sqrt().item<double>());
  padded.encoder_mask_BT.fill_(1);
  EXPECT_GT((plain - output(padded)).abs().max().item<double>(),
            1e-2 * plain.square().mean().sqrt().item<double>());
}

// Weights that the device does not use are not on it, exactly.
TEST(QwenImageBytesTest, OnlyUsedTensorsReachTheDevice) {
  for (const bool host_modulation : {false, true}) {
    testing::TinyShape shape;
    shape.host_modulation = host_modulation;
    const TinyCheckpoint checkpoint = MakeTinyCheckpoint(shape, Dtype::kFloat32);
    const auto device = MakeHostDevice();
    const CountedHostMemory counted(&device->ledger());
    const auto swapper = MakeSwapper(checkpoint, {0, 1}, device.get());
    const auto model = CreateModel(checkpoint.model, *checkpoint.source, at::kCPU);
    ASSERT_TRUE(model.ok()) << model.status().message();
    int64_t edges = 0, blocks = 0;
    for (const TensorSpec& tensor : checkpoint.model.edge_tensors) {
      int64_t bytes = 4;
      for (const int64_t side : tensor.shape) bytes *= side;
      edges += (bytes + 63) / 64 * 64;
    }
    for (const DescribedBlock& block : checkpoint.model.blocks) {
      for (size_t i = 0; i < block.tensors.size(); ++i) {
        // Slots 12 and 13, weight and bias.
        if (host_modulation && i / 2 >= 12 && i < 28) continue;
        int64_t bytes = 4;
        for (const int64_t side : block.tensors[i].shape) bytes *= side;
        blocks += (bytes + 255) / 256 * 256;
      }
    }
    const offload::MemorySnapshot memory = device->ledger().Snapshot();
    const auto of = [&](offload::MemoryTag tag) {
      return memory.current_bytes[static_cast<size_t>(tag)];
    };
    EXPECT_EQ(of(offload::MemoryTag::kEdgeWeights), edges);
    EXPECT_EQ(of(offload::MemoryTag::kResidentBlocks), blocks);
    EXPECT_EQ(memory.total_bytes, edges + blocks);
    EXPECT_EQ(memory.total_peak_bytes, edges + blocks) << "nor on the way";
  }
}

TEST_F(QwenImageTest, CreateModelNamesAFamilyWithoutAForward) {
  ModelDescription other = checkpoint_.model;
  other.family = "unheard_of";
  const auto model = CreateModel(other, *checkpoint_.source, at::kCPU);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("unheard_of"));
}

}  // namespace
}  // namespace blockswap::worker
