// SPDX-License-Identifier: Apache-2.0
#include "worker/family/base_layout.h"

#include <gtest/gtest.h>

#include <string>

namespace blockswap::worker {
namespace {

ModelDescription Model() {
  ModelDescription model;
  model.edge_tensors = {{"in.weight", {3, 5}}, {"in.bias", {3}}};
  model.blocks.resize(2);
  model.blocks[0].name = "blocks.0";
  model.blocks[0].tensors = {{"blocks.0.weight", {8, 8}}, {"blocks.0.norm", {1}}};
  model.blocks[1].name = "blocks.1";
  model.blocks[1].tensors = {{"blocks.1.weight", {4, 4}}};
  return model;
}

TEST(BaseLayoutTest, EdgesComeFirstThenEveryBlock) {
  const std::vector<BaseUnit> units = BaseUnitsOf(Model());
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0].name, "edges");
  EXPECT_EQ(units[1].name, "blocks.0");
  EXPECT_EQ(units[2].name, "blocks.1");
  EXPECT_EQ(units[1].tensors[1].name, "blocks.0.norm");
}

TEST(BaseLayoutTest, TensorsStartAlignedAndDoNotOverlap) {
  for (const BaseUnit& unit : BaseUnitsOf(Model())) {
    int64_t end = 0;
    for (size_t i = 0; i < unit.tensors.size(); ++i) {
      EXPECT_EQ(unit.offsets[i] % 64, 0) << unit.name;
      EXPECT_GE(unit.offsets[i], end) << unit.name;
      end = unit.offsets[i] + ElementsOf(unit.tensors[i]);
    }
    EXPECT_GE(unit.elements, end) << unit.name;
    EXPECT_LT(unit.elements, end + 64) << unit.name;
  }
}

TEST(BaseLayoutTest, CountsWhatTrainingTakes) {
  const std::vector<BaseUnit> units = BaseUnitsOf(Model());
  // Edges 64 + 64, blocks 64 + 64 and 64 elements.
  EXPECT_EQ(BaseGradientBytes(units, Dtype::kBFloat16), 128 * 2 + 128 * 4);
  EXPECT_EQ(BaseGradientBytes(units, Dtype::kFloat32), 128 * 4 + 128 * 4);
  EXPECT_EQ(BaseStateBytes(units), (128 + 128 + 64) * 16);
}

}  // namespace
}  // namespace blockswap::worker
