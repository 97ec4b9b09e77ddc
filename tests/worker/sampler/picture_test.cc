// SPDX-License-Identifier: Apache-2.0
#include "worker/sampler/picture.h"

#include <png.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace blockswap::worker {
namespace {

TEST(PictureTest, GreyCellsBecomeSquaresOfTheirBrightness) {
  const at::Tensor latent_CHW = at::tensor({-1.0f, 0.0f, 1.0f, 7.0f}, at::kFloat).view({1, 2, 2});
  const Picture picture = DrawLatent(latent_CHW, /*scale=*/3);
  ASSERT_EQ(picture.width, 6);
  ASSERT_EQ(picture.height, 6);
  const auto pixel = [&](int64_t x, int64_t y) {
    return picture.rgb[static_cast<size_t>((y * 6 + x) * 3)];
  };
  EXPECT_EQ(pixel(0, 0), 0);
  EXPECT_EQ(pixel(2, 2), 0);
  EXPECT_EQ(pixel(3, 0), 128);
  EXPECT_EQ(pixel(0, 3), 255);
  EXPECT_EQ(pixel(5, 5), 255);
}

TEST(PictureTest, ThreeChannelsAreColours) {
  at::Tensor latent_CHW = at::full({3, 1, 1}, -1.0, at::kFloat);
  latent_CHW[1][0][0] = 1.0;
  const Picture picture = DrawLatent(latent_CHW, 1);
  EXPECT_EQ(picture.rgb, (std::vector<uint8_t>{0, 255, 0}));
}

TEST(PictureTest, SheetsHoldEveryRow) {
  const Picture black{2, 2, std::vector<uint8_t>(12, 0)};
  const Picture sheet = ArrangeSheet({{black, black, black}, {black}});
  EXPECT_EQ(sheet.width, 3 * 6 + 4);
  EXPECT_EQ(sheet.height, 2 * 6 + 4);
  EXPECT_EQ(sheet.rgb[0], 235);
  EXPECT_EQ(sheet.rgb[static_cast<size_t>((4 * sheet.width + 4) * 3)], 0);
}

TEST(PictureTest, PngReadsBackToTheSamePixels) {
  std::string pattern = (std::filesystem::temp_directory_path() / "blockswap-png-XXXXXX").string();
  const std::string root = mkdtemp(pattern.data());
  Picture picture{3, 2, {}};
  for (int i = 0; i < 18; ++i) picture.rgb.push_back(static_cast<uint8_t>(i * 13));
  ASSERT_TRUE(WritePng(picture, root + "/a.png").ok());
  png_image image;
  std::memset(&image, 0, sizeof(image));
  image.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_file(&image, (root + "/a.png").c_str()), 0);
  image.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  ASSERT_NE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr), 0);
  EXPECT_EQ(pixels, picture.rgb);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace blockswap::worker
