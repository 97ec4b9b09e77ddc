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

TEST(ActivationEstimateTest, CountsRowsAsTheNoteSays) {
  const TokenCounts tokens = {1000, 100, 1};
  const int64_t row = 1100 * 96 * 2;
  EXPECT_EQ(BoundaryBytes(Shape(), tokens), row);
  // Without an adapter and with many tokens the rest is statistics and modulation.
  const int64_t small = 1100 * (3 + 4) * 4 + 12 * 96 * 4;
  EXPECT_EQ(KeptActivationBytes(Shape(), tokens, 0), 16 * row + small);
  EXPECT_EQ(BlockActivationBytes(Shape(), tokens, 0, 0), 25 * row + small);
}

TEST(ActivationEstimateTest, GrowsWithEverythingThatCosts) {
  const TokenCounts tokens = {64, 8, 2};
  const auto bytes = [&](auto change) {
    DoubleStreamShape shape = Shape();
    TokenCounts counts = tokens;
    change(shape, counts);
    return BlockActivationBytes(shape, counts, 1000, 224) + EdgeActivationBytes(shape, counts, 6);
  };
  const int64_t least = bytes([](auto&, auto&) {});
  EXPECT_GT(bytes([](auto& s, auto&) { s.dtype_bytes = 4; }), least);
  EXPECT_GT(bytes([](auto& s, auto&) { s.mlp_ratio = 8; }), least);
  EXPECT_GT(bytes([](auto& s, auto&) { s.two_times = true; }), least);
  EXPECT_GT(bytes([](auto&, auto& c) { c.text = 9; }), least);
  EXPECT_GT(bytes([](auto&, auto& c) { c.image = 65; }), least);
  EXPECT_GT(bytes([](auto&, auto& c) { c.batch = 3; }), least);
  EXPECT_GT(BlockActivationBytes(Shape(), tokens, 1000, 225),
            BlockActivationBytes(Shape(), tokens, 1000, 224));
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
