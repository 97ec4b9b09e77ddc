// SPDX-License-Identifier: Apache-2.0
#include "worker/family/activation_estimate.h"

#include <gtest/gtest.h>

#include "worker/family/matmul_scratch.h"

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
  const StreamAdapters stream = {true, true, true, 3 * rank, rank, rank, rank};
  return {stream, stream};
}

TEST(ActivationEstimateTest, CountsRowsAsTheNoteSays) {
  const TokenCounts tokens = {1000, 100, 1};
  const int64_t image = 1000 * 96 * 2, text = 100 * 96 * 2;
  EXPECT_EQ(BoundaryBytes(Shape(), tokens), image + text);
  // Beside rows: softmax statistics, mean and deviation of the norms.
  const int64_t all = 1100 * (3 + 4) * 4, before_mlp = 100 * (3 + 2) * 4;
  EXPECT_EQ(KeptActivationBytes(Shape(), tokens, {}, BlockPlace::kInner),
            11 * (image + text) + all);
  EXPECT_EQ(KeptActivationBytes(Shape(), tokens, {}, BlockPlace::kLast),
            11 * image + 6 * text + all - 100 * 2 * 4);
  // Without adapters attention's backward is the worst moment, with the scratch of one tile and of
  // the product for its keys.
  const int64_t scratch =
      2 * 256 * 512 * (4 + 2) + MatmulScratchBytes({512, 32, 256, /*left_transposed=*/true}, 2);
  EXPECT_EQ(BlockActivationBytes(Shape(), tokens, {}, BlockPlace::kInner),
            14 * (image + text) + 1100 * (3 + 2) * 4 + scratch);
  const BlockAdapters adapters = Everywhere(0);
  const int64_t modulation = 12 * 96 * 4;
  EXPECT_EQ(KeptActivationBytes(Shape(), tokens, adapters, BlockPlace::kInner),
            15 * (image + text) + all + modulation);
  EXPECT_EQ(BlockActivationBytes(Shape(), tokens, adapters, BlockPlace::kInner),
            (15 + 2 + 8) * image + 11 * text + 1000 * (3 + 4) * 4 + before_mlp + modulation);
}

TEST(ActivationEstimateTest, TheLongerStreamDecidesWhereThePeakIs) {
  const TokenCounts text_heavy = {10, 400, 1};
  const int64_t image = 10 * 96 * 2, text = 400 * 96 * 2;
  EXPECT_EQ(BlockActivationBytes(Shape(), text_heavy, {}, BlockPlace::kInner),
            (11 + 3 + 8) * text + 13 * image + 410 * (3 + 4) * 4);
}

TEST(ActivationEstimateTest, AWidenedWeightCountsWhereItExceedsTheGradientBeforeGelu) {
  const TokenCounts few = {4, 1, 1};
  DoubleStreamShape widened = Shape();
  widened.dtype_bytes = 4;
  const int64_t without = BlockActivationBytes(widened, few, {}, BlockPlace::kInner);
  widened.widened_weight_bytes = 100 * 96 * 4;
  EXPECT_EQ(BlockActivationBytes(widened, few, {}, BlockPlace::kInner) - without,
            100 * 96 * 4 - 4 * 4 * 96 * 4);
}

// The product over the MLP's hidden values packs most: that of the recompute.
TEST(ActivationEstimateTest, ScratchOfProductsCountsWhereItExceedsTheGradientBeforeGelu) {
  const TokenCounts few = {4, 1, 1};
  const int64_t image = 4 * 96 * 2, text = 96 * 2, statistics = 5 * (3 + 2) * 4 + 4 * 2 * 4;
  EXPECT_EQ(
      BlockActivationBytes(Shape(), few, {}, BlockPlace::kInner),
      (11 + 1 + 4 + 1) * image + (6 + 1) * text + statistics + MatmulScratchBytes({4, 96, 384}, 2));
}

TEST(ActivationEstimateTest, GrowsWithEverythingThatCosts) {
  const TokenCounts tokens = {64, 8, 2};
  const auto bytes = [&](auto change) {
    DoubleStreamShape shape = Shape();
    TokenCounts counts = tokens;
    change(shape, counts);
    return BlockActivationBytes(shape, counts, Everywhere(16), BlockPlace::kInner) +
           EdgeActivationBytes(shape, counts) + ConditioningBytes(shape, counts, 6);
  };
  const int64_t least = bytes([](auto&, auto&) {});
  EXPECT_GT(bytes([](auto& s, auto&) { s.dtype_bytes = 4; }), least);
  EXPECT_GT(bytes([](auto& s, auto&) { s.mlp_ratio = 8; }), least);
  EXPECT_GT(bytes([](auto& s, auto&) { s.two_times = true; }), least);
  EXPECT_GT(bytes([](auto&, auto& c) { c.text = 9; }), least);
  EXPECT_GT(bytes([](auto&, auto& c) { c.image = 65; }), least);
  EXPECT_GT(bytes([](auto&, auto& c) { c.batch = 3; }), least);
  EXPECT_GT(BlockActivationBytes(Shape(), tokens, Everywhere(17), BlockPlace::kInner),
            BlockActivationBytes(Shape(), tokens, Everywhere(16), BlockPlace::kInner));
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
