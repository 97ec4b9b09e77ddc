// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/worker/data/temp_directory.h"
#include "tests/worker/data/tiny_checkpoint.h"
#include "worker/family/family.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<CheckpointSource> Source(const TempDirectory& directory,
                                         const std::vector<TinyTensor>& tensors) {
  const std::string path = directory.Path("w.safetensors");
  EXPECT_TRUE(WriteTinyTensors(path, tensors).ok());
  return *CheckpointSource::Open(path, "");
}

TEST(FamiliesTest, AreFoundByNameAndSuggestTheNearest) {
  for (const Family* family : AllFamilies()) EXPECT_EQ(*FindFamily(family->name()), family);
  EXPECT_THAT(FindFamily("qwen-image").status().ToString(),
              HasSubstr("did you mean \"qwen_image\"?"));
  EXPECT_THAT(FindFamily("sdxl").status().ToString(), HasSubstr("(available: qwen_image)"));
}

TEST(FamiliesTest, AreDetectedByTensorNames) {
  const TempDirectory directory;
  const auto source = Source(directory, TinyQwenImageTensors(TinyQwenImageConfig(1)));
  EXPECT_EQ((*DetectFamily(*source))->name(), "qwen_image");
}

// F037: a base of another architecture is three lines.
TEST(FamiliesTest, RefuseAnUnknownCheckpointInThreeLines) {
  const TempDirectory directory;
  const auto source =
      Source(directory, {{"unet.conv_in.weight", {2}}, {"unet.conv_out.weight", {2}}, {"x", {1}}});
  const std::string error = DetectFamily(*source).status().ToString();
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 2) << error;
  EXPECT_THAT(error,
              HasSubstr("3 tensors, such as \"unet.conv_in.weight\" and \"unet.conv_out.weight\""));
}

}  // namespace
}  // namespace blockswap::worker
