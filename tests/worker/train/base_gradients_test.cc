// SPDX-License-Identifier: Apache-2.0
#include "worker/train/base_gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/worker/model/tiny_model.h"
#include "worker/kernels/device_memory.h"

namespace blockswap::worker {
namespace {

using testing::MakeTinyCheckpoint;
using testing::TinyCheckpoint;
using testing::TinyShape;

class BaseGradientsTest : public ::testing::Test {
 protected:
  BaseGradientsTest()
      : checkpoint_(MakeTinyCheckpoint(TinyShape{}, Dtype::kBFloat16)),
        units_(BaseUnitsOf(checkpoint_.model)) {}

  // One micro-batch whose gradients are all `value` in block `block`.
  static void Add(BaseGradients& gradients, int block, double value) {
    gradients.BeginBlock(block);
    for (const at::Tensor& view : gradients.BlockViews(block)) view.add_(value);
    gradients.EndBlock(block);
  }

  const TinyCheckpoint checkpoint_;
  const std::vector<BaseUnit> units_;
};

TEST_F(BaseGradientsTest, UnitsCoverEveryTensorOfTheCheckpointOnceAndAligned) {
  size_t tensors = 0;
  for (const BaseUnit& unit : units_) {
    int64_t end = 0;
    for (size_t i = 0; i < unit.tensors.size(); ++i) {
      EXPECT_TRUE(checkpoint_.source->tensors().count(unit.tensors[i].name)) << unit.name;
      EXPECT_EQ(unit.offsets[i] % 64, 0);
      EXPECT_GE(unit.offsets[i], end);
      end = unit.offsets[i] + ElementsOf(unit.tensors[i]);
      ++tensors;
    }
    EXPECT_GE(unit.elements, end);
  }
  EXPECT_EQ(tensors, checkpoint_.source->tensors().size());
}

TEST_F(BaseGradientsTest, MicroBatchesAddUpInFullPrecision) {
  BaseGradients gradients(&units_, Dtype::kBFloat16, at::kCPU);
  gradients.Zero();
  // 256 + 1 is no bfloat16: a sum in the model's type would lose it.
  Add(gradients, 2, 256);
  Add(gradients, 2, 1);
  gradients.Finish();
  const at::Tensor first = gradients.View(gradients.sum(3), 3, 0);
  EXPECT_TRUE(at::equal(first, at::full_like(first, 257)));
}

TEST_F(BaseGradientsTest, ABlockStartsAtZeroWhateverRanBefore) {
  BaseGradients gradients(&units_, Dtype::kBFloat16, at::kCPU);
  gradients.Zero();
  Add(gradients, 5, 3);
  gradients.BeginBlock(4);
  gradients.EndBlock(4);
  gradients.Finish();
  EXPECT_EQ(gradients.sum(5).abs().max().item<float>(), 0);
  EXPECT_EQ(gradients.sum(6).max().item<float>(), 3);
}

TEST_F(BaseGradientsTest, AStepForgetsTheOneBefore) {
  BaseGradients gradients(&units_, Dtype::kBFloat16, at::kCPU);
  gradients.Zero();
  for (int block = 0; block < 6; ++block) Add(gradients, block, 2);
  gradients.edges()[0].add_(7);
  gradients.Finish();
  EXPECT_EQ(gradients.sum(0).max().item<float>(), 7);
  gradients.Zero();
  Add(gradients, 1, 5);
  gradients.Finish();
  for (int unit : {0, 1, 3, 6}) EXPECT_EQ(gradients.sum(unit).abs().max().item<float>(), 0);
  EXPECT_EQ(gradients.sum(2).max().item<float>(), 5);
}

// The padding between tensors stays zero, so that it counts neither in the norm nor in an update.
TEST_F(BaseGradientsTest, PaddingGetsNoGradient) {
  BaseGradients gradients(&units_, Dtype::kBFloat16, at::kCPU);
  gradients.Zero();
  Add(gradients, 0, 1);
  gradients.Finish();
  int64_t elements = 0;
  for (const TensorSpec& tensor : units_[1].tensors) elements += ElementsOf(tensor);
  EXPECT_EQ(gradients.sum(1).sum().item<double>(), static_cast<double>(elements));
  EXPECT_LT(elements, units_[1].elements);
}

TEST_F(BaseGradientsTest, TakesTheDeviceBytesThatAreForeseen) {
  const auto device = testing::MakeHostDevice();
  const CountedHostMemory counted(&device->ledger());
  const BaseGradients gradients(&units_, Dtype::kBFloat16, at::kCPU);
  EXPECT_EQ(device->ledger().Snapshot().total_bytes, BaseGradientBytes(units_, Dtype::kBFloat16));
}

}  // namespace
}  // namespace blockswap::worker
