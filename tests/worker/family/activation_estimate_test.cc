// SPDX-License-Identifier: Apache-2.0
#include "worker/family/activation_estimate.h"

#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

DoubleStreamShape Shape() {
  DoubleStreamShape shape;
  shape.dim = 96;
  shape.heads = 3;
  shape.head_dim = 32;
  shape.in_channels = shape.out_channels = 4;
  shape.text_features = 24;
  return shape;
}

// Adapters on every linear, of one rank.
BlockAdapters Everywhere(int64_t rank) {
  const StreamAdapters stream = {true, true, true, 3 * rank, 3 * rank};
  return {stream, stream, rank * 4 * Shape().dim};
}

TEST(ActivationEstimateTest, CountsRowsAsTheNoteSays) {
  const TokenCounts tokens = {1000, 100, 1};
  const int64_t image = 1000 * 96 * 2, text = 100 * 96 * 2;
  EXPECT_EQ(BoundaryBytes(Shape(), tokens), image + text);
  // Beside rows: softmax statistics, mean and deviation of the norms.
  const int64_t all = 1100 * (3 + 4) * 4, before_mlp = 100 * (3 + 2) * 4;
  EXPECT_EQ(KeptActivationBytes(Shape(), tokens, {}), 11 * (image + text) + all);
  // Without adapters attention's backward is the worst moment, with the scratch of one tile.
  const int64_t scratch = 2 * 256 * 512 * (4 + 2);
  EXPECT_EQ(BlockActivationBytes(Shape(), tokens, {}),
            14 * (image + text) + 1100 * (3 + 2) * 4 + scratch);
  const BlockAdapters adapters = Everywhere(0);
  const int64_t modulation = 12 * 96 * 4;
  EXPECT_EQ(KeptActivationBytes(Shape(), tokens, adapters), 15 * (image + text) + all + modulation);
  EXPECT_EQ(BlockActivationBytes(Shape(), tokens, adapters),
            (15 + 2 + 8) * image + 11 * text + 1000 * (3 + 4) * 4 + before_mlp + modulation);
}

TEST(ActivationEstimateTest, TheLongerStreamDecidesWhereThePeakIs) {
  const TokenCounts text_heavy = {10, 400, 1};
  const int64_t image = 10 * 96 * 2, text = 400 * 96 * 2;
  EXPECT_EQ(BlockActivationBytes(Shape(), text_heavy, {}),
            (11 + 3 + 8) * text + 13 * image + 410 * (3 + 4) * 4);
}

TEST(ActivationEstimateTest, CopiesCountWhereTheyExceedTheGradientBeforeGelu) {
  const TokenCounts few = {4, 1, 1};
  BlockAdapters adapters;
  const int64_t without = BlockActivationBytes(Shape(), few, adapters);
  adapters.largest_factor = 64 * 96;
  EXPECT_EQ(BlockActivationBytes(Shape(), few, adapters) - without, 64 * 96 * 2 - 4 * 4 * 96 * 2);
  DoubleStreamShape widened = Shape();
  widened.widened_weight_bytes = 100 * 96 * 2;
  EXPECT_EQ(BlockActivationBytes(widened, few, adapters) - without, 100 * 96 * 2 - 4 * 4 * 96 * 2);
}

TEST(ActivationEstimateTest, GrowsWithEverythingThatCosts) {
  const TokenCounts tokens = {64, 8, 2};
  const auto bytes = [&](auto change) {
    DoubleStreamShape shape = Shape();
    TokenCounts counts = tokens;
    change(shape, counts);
    return BlockActivationBytes(shape, counts, Everywhere(16)) +
           EdgeActivationBytes(shape, counts) + ConditioningBytes(shape, counts, 6);
  };
  const int64_t least = bytes([](auto&, auto&) {});
  EXPECT_GT(bytes([](auto& s, auto&) { s.dtype_bytes = 4; }), least);
  EXPECT_GT(bytes([](auto& s, auto&) { s.mlp_ratio = 8; }), least);
  EXPECT_GT(bytes([](auto& s, auto&) { s.two_times = true; }), least);
  EXPECT_GT(bytes([](auto&, auto& c) { c.text = 9; }), least);
  EXPECT_GT(bytes([](auto&, auto& c) { c.image = 65; }), least);
  EXPECT_GT(bytes([](auto&, auto& c) { c.batch = 3; }), least);
  EXPECT_GT(BlockActivationBytes(Shape(), tokens, Everywhere(17)),
            BlockActivationBytes(Shape(), tokens, Everywhere(16)));
}

// The full model at 1024x1024: two operations per parameter and token in the linears, 4 L^2 dim in
// attention.
TEST(ActivationEstimateTest, CountsOperations) {
  DoubleStreamShape shape;
  shape.dim = 3072;
  const BlockFlops flops = ForwardFlops(shape, 4096, 256, 1);
  EXPECT_NEAR(flops.attention, 4.0 * 4352 * 4352 * 3072, 1e6);
  const double linear_parameters = 12.0 * 3072 * 3072;  // of one stream, modulation apart
  EXPECT_NEAR(flops.linears, 2 * linear_parameters * 4352 + 2 * 12.0 * 3072 * 3072, 1e6);
  EXPECT_NEAR(ForwardFlops(shape, 4096, 256, 3).forward(), 3 * flops.forward(), 1e6);
}

}  // namespace
}  // namespace blockswap::worker
