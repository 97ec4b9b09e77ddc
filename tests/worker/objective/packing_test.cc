// SPDX-License-Identifier: Apache-2.0
#include "worker/objective/packing.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

TEST(PackingTest, FeaturesAreChannelThenRowThenColumn) {
  const at::Tensor latents_BCHW = at::arange(2 * 3 * 4 * 6, at::kFloat).view({2, 3, 4, 6});
  const at::Tensor tokens_BSF = PackLatents(latents_BCHW, 2);
  ASSERT_EQ(tokens_BSF.sizes().vec(), (std::vector<int64_t>{2, 6, 12}));
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t y = 0; y < 4; ++y) {
        for (int64_t x = 0; x < 6; ++x) {
          const int64_t token = (y / 2) * 3 + x / 2;
          const int64_t feature = c * 4 + (y % 2) * 2 + x % 2;
          ASSERT_EQ(tokens_BSF[b][token][feature].item<float>(),
                    latents_BCHW[b][c][y][x].item<float>());
        }
      }
    }
  }
}

TEST(PackingTest, UnpackingGivesTheLatentsBack) {
  const at::Tensor latents_BCHW = at::arange(1 * 16 * 6 * 4, at::kFloat).view({1, 16, 6, 4});
  EXPECT_TRUE(at::equal(UnpackLatents(PackLatents(latents_BCHW, 2), 6, 4, 2), latents_BCHW));
}

}  // namespace
}  // namespace blockswap::worker
