// SPDX-License-Identifier: Apache-2.0
#include "offload/plan/activation_bytes.h"

#include <gtest/gtest.h>

namespace blockswap::offload {
namespace {

// Ten blocks with inputs of 10 bytes that keep 50; a block peaks at 80, the edge at 60; 7
// throughout.
ModelProfile TenBlocks() {
  ModelProfile model;
  model.blocks.resize(10);
  for (BlockProfile& block : model.blocks) block.kept_activation_bytes = 50;
  model.boundary_bytes = 100;
  model.block_activation_bytes = 80;
  model.edge_activation_bytes = 60;
  model.conditioning_bytes = 7;
  return model;
}

TEST(ActivationPeakTest, IsOfTheLargerPhaseAndNotTheirSum) {
  ModelProfile model = TenBlocks();
  EXPECT_EQ(ActivationPeak(model, 1, {}).device, 100 + 80 + 7);
  model.edge_activation_bytes = 90;
  EXPECT_EQ(ActivationPeak(model, 1, {}).device, 100 + 90 + 7);
  EXPECT_EQ(ActivationPeak(model, 1, {}).host, 0);
}

TEST(ActivationPeakTest, MicroBatchesOneAfterAnotherTakeNoMore) {
  EXPECT_EQ(ActivationPeak(TenBlocks(), 4, {}).device, ActivationPeak(TenBlocks(), 1, {}).device);
}

TEST(ActivationPeakTest, WhatABlockKeepsIsPartOfItsOwnPeak) {
  ActivationChoice choice;
  choice.keeps.assign(10, false);
  choice.keeps[0] = true;
  // The last block recomputes while the first one holds.
  EXPECT_EQ(ActivationPeak(TenBlocks(), 1, choice).device, 100 + 50 + 80 + 7);
  choice.keeps.assign(10, true);
  // In the last block's backward its own 50 are within the 80; around the blocks all ten hold.
  EXPECT_EQ(ActivationPeak(TenBlocks(), 1, choice).device, 100 + 500 + 60 + 7);
  ModelProfile model = TenBlocks();
  model.edge_activation_bytes = 0;
  EXPECT_EQ(ActivationPeak(model, 1, choice).device, 100 + 450 + 80 + 7);
}

TEST(ActivationPeakTest, InputsOnTheHostLeaveTwoUnderWay) {
  ActivationChoice choice;
  choice.num_offloaded = 10;
  const ActivationBytes all = ActivationPeak(TenBlocks(), 1, choice);
  // The last block's own, which never left, and that of the block before, on its way back.
  EXPECT_EQ(all.device, 20 + 80 + 7);
  EXPECT_EQ(all.host, 100);
  choice.num_offloaded = 5;
  const ActivationBytes half = ActivationPeak(TenBlocks(), 1, choice);
  // Of those that leave the last is still there; none has to come back yet.
  EXPECT_EQ(half.device, 50 + 10 + 80 + 7);
  EXPECT_EQ(half.host, 50);
  choice.num_offloaded = 1;  // it is under way until its backward
  EXPECT_EQ(ActivationPeak(TenBlocks(), 1, choice).device,
            ActivationPeak(TenBlocks(), 1, {}).device);
}

TEST(ActivationPeakTest, InputsOnTheHostAreOneFewerAroundTheBlocks) {
  ModelProfile model = TenBlocks();
  model.edge_activation_bytes = 500;
  ActivationChoice choice;
  choice.num_offloaded = 10;
  EXPECT_EQ(ActivationPeak(model, 1, choice).device, 10 + 500 + 7);
  choice.num_offloaded = 4;
  EXPECT_EQ(ActivationPeak(model, 1, choice).device, 70 + 500 + 7);
}

TEST(ActivationPeakTest, ABlockThatKeepsItsActivationsKeepsItsInputAndTheNextOnes) {
  ModelProfile model = TenBlocks();
  model.edge_activation_bytes = 500;
  ActivationChoice choice;
  choice.num_offloaded = 10;
  choice.keeps.assign(10, false);
  choice.keeps[3] = true;
  // Inputs of blocks 3, 4 (the output of 3) and 9 (the last to leave).
  EXPECT_EQ(ActivationPeak(model, 1, choice).device, 30 + 50 + 500 + 7);
  model.edge_activation_bytes = 0;
  // In the backward of block 9 that of block 8 comes back as well.
  EXPECT_EQ(ActivationPeak(model, 1, choice).device, 40 + 50 + 80 + 7);
}

TEST(ActivationPeakTest, TheLastBlockMayTakeLess) {
  ModelProfile model = TenBlocks();
  model.last_block_activation_bytes = 75;
  // The last block's backward finds ten inputs, that of the block before nine.
  EXPECT_EQ(ActivationPeak(model, 1, {}).device, 100 + 75 + 7);
  model.last_block_activation_bytes = 65;
  EXPECT_EQ(ActivationPeak(model, 1, {}).device, 90 + 80 + 7);
}

TEST(ActivationPeakTest, BlockMajorHoldsTheInputsOfAllMicroBatches) {
  ActivationChoice choice;
  choice.block_major = true;
  // Three times inputs and conditioning, one block at work, two streams that wait.
  EXPECT_EQ(ActivationPeak(TenBlocks(), 3, choice).device, 300 + 80 + 3 * 7 + 2 * 10);
  EXPECT_EQ(ActivationPeak(TenBlocks(), 1, choice).device,
            ActivationPeak(TenBlocks(), 1, {}).device);
}

TEST(ActivationPeakTest, ASumThatIsNoMultipleOfTheBlocksStaysExact) {
  ModelProfile model = TenBlocks();
  model.boundary_bytes = 105;
  EXPECT_EQ(ActivationPeak(model, 1, {}).device, 105 + 80 + 7);
  EXPECT_EQ(BoundaryBytesOfBlock(model), 11);
}

}  // namespace
}  // namespace blockswap::offload
