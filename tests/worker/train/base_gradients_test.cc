// SPDX-License-Identifier: Apache-2.0
#include "worker/train/base_gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "offload/device/host_device.h"
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

  std::unique_ptr<BaseGradients> Make() {
    auto gradients = BaseGradients::Create(device_.get(), &units_, Dtype::kBFloat16, at::kCPU,
                                           /*lock=*/false);
    EXPECT_TRUE(gradients.ok()) << gradients.status();
    return *std::move(gradients);
  }
  // One micro-batch whose gradients are all `value` in block `block`.
  static void Add(BaseGradients& gradients, int block, double value) {
    ASSERT_TRUE(gradients.BeginBlock(block).ok());
    for (const at::Tensor& view : gradients.BlockViews(block)) view.add_(value);
    ASSERT_TRUE(gradients.EndBlock(block).ok());
  }

  const TinyCheckpoint checkpoint_;
  const std::vector<BaseUnit> units_;
  // Copies take a while, so that what does not wait for them is seen.
  const std::unique_ptr<offload::HostDevice> device_ =
      testing::MakeHostDevice({.latency = absl::Microseconds(300)});
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
  const auto owned = Make();
  BaseGradients& gradients = *owned;
  gradients.Zero();
  // 256 + 1 is no bfloat16: a sum in the model's type would lose it.
  Add(gradients, 2, 256);
  Add(gradients, 2, 1);
  ASSERT_TRUE(gradients.Finish().ok());
  const at::Tensor first = gradients.View(gradients.sum(3), 3, 0);
  EXPECT_TRUE(at::equal(first, at::full_like(first, 257)));
}

TEST_F(BaseGradientsTest, ABlockStartsAtZeroWhateverRanBefore) {
  const auto owned = Make();
  BaseGradients& gradients = *owned;
  gradients.Zero();
  Add(gradients, 5, 3);
  Add(gradients, 4, 0);
  ASSERT_TRUE(gradients.Finish().ok());
  EXPECT_EQ(gradients.sum(5).abs().max().item<float>(), 0);
  EXPECT_EQ(gradients.sum(6).max().item<float>(), 3);
}

TEST_F(BaseGradientsTest, AStepForgetsTheOneBefore) {
  const auto owned = Make();
  BaseGradients& gradients = *owned;
  gradients.Zero();
  for (int block = 0; block < 6; ++block) Add(gradients, block, 2);
  gradients.edges()[0].add_(7);
  ASSERT_TRUE(gradients.Finish().ok());
  EXPECT_EQ(gradients.sum(0).max().item<float>(), 7);
  gradients.Zero();
  Add(gradients, 1, 5);
  ASSERT_TRUE(gradients.Finish().ok());
  for (int unit : {0, 1, 3, 6}) EXPECT_EQ(gradients.sum(unit).abs().max().item<float>(), 0);
  EXPECT_EQ(gradients.sum(2).max().item<float>(), 5);
}

// The padding between tensors stays zero, so that it counts neither in the norm nor in an update.
TEST_F(BaseGradientsTest, PaddingGetsNoGradient) {
  const auto owned = Make();
  BaseGradients& gradients = *owned;
  gradients.Zero();
  Add(gradients, 0, 1);
  ASSERT_TRUE(gradients.Finish().ok());
  int64_t elements = 0;
  for (const TensorSpec& tensor : units_[1].tensors) elements += ElementsOf(tensor);
  EXPECT_EQ(gradients.sum(1).sum().item<double>(), static_cast<double>(elements));
  EXPECT_LT(elements, units_[1].elements);
}

TEST_F(BaseGradientsTest, TakesTheDeviceBytesThatAreForeseen) {
  const CountedHostMemory counted(&device_->ledger());
  const auto gradients = Make();
  EXPECT_EQ(device_->ledger().Snapshot().total_bytes, BaseGradientBytes(units_, Dtype::kBFloat16));
}

TEST_F(BaseGradientsTest, EveryByteThatComesDownIsCountedByTheDevice) {
  const auto gradients = Make();
  gradients->Zero();
  int64_t expected = 0;
  for (const int block : {5, 5, 2, 0}) {
    Add(*gradients, block, 1);
    expected += units_[static_cast<size_t>(block) + 1].elements * DtypeBytes(Dtype::kBFloat16);
  }
  ASSERT_TRUE(gradients->Finish().ok());
  expected += units_[0].elements * DtypeBytes(Dtype::kFloat32);
  EXPECT_EQ(device_->copies(offload::CopyDirection::kDeviceToHost).bytes, expected);
  EXPECT_EQ(gradients->sum(6).max().item<float>(), 2);
}

// A step that ran out of memory is repeated: what was on its way down must not be added to it.
TEST_F(BaseGradientsTest, AStepThatEndedEarlyLeavesNothingInTheNext) {
  const auto gradients = Make();
  gradients->Zero();
  Add(*gradients, 3, 9);
  gradients->Zero();
  Add(*gradients, 3, 1);
  ASSERT_TRUE(gradients->Finish().ok());
  EXPECT_EQ(gradients->sum(4).max().item<float>(), 1);
}

}  // namespace
}  // namespace blockswap::worker
