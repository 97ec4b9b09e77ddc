// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <string.h>

#include "tests/worker/data/temp_directory.h"
#include "tests/worker/data/tiny_checkpoint.h"
#include "worker/family/family.h"
#include "worker/family/qwen_image_layout.h"

namespace blockswap::worker {
namespace {

TEST(BlockPackingTest, PutsEveryTensorAtAnAlignedOffsetWithoutOverlap) {
  const DescribedBlock block = DescribeQwenImageBlock(TinyQwenImageConfig(), 0);
  const offload::BlockProfile profile = PackBlock(block, Dtype::kBFloat16);
  ASSERT_EQ(profile.tensors.size(), 32u);
  int64_t end = 0;
  for (const offload::TensorExtent& extent : profile.tensors) {
    EXPECT_EQ(extent.offset % offload::kTensorAlignment, 0);
    EXPECT_GE(extent.offset, end);
    EXPECT_LT(extent.offset - end, offload::kTensorAlignment);
    end = extent.offset + extent.bytes;
  }
  EXPECT_EQ(profile.tensors[0].bytes, 32 * 32 * 2);
  EXPECT_EQ(profile.bytes % offload::kTensorAlignment, 0);
  EXPECT_GE(profile.bytes, end);
}

TEST(BlockPackingTest, FullSizeBlockHasTheKnownParameterCount) {
  const offload::BlockProfile profile =
      PackBlock(DescribeQwenImageBlock(QwenImageConfig(), 0), Dtype::kBFloat16);
  int64_t bytes = 0;
  for (const offload::TensorExtent& extent : profile.tensors) bytes += extent.bytes;
  EXPECT_EQ(bytes, int64_t{2} * 339'831'296);
  EXPECT_EQ(profile.bytes, bytes) << "full-size tensors need no padding";
}

TEST(BlockPackingTest, ReadsABlockWithPaddingZeroed) {
  const TempDirectory directory;
  ASSERT_TRUE(WriteTinyCheckpoint(directory.path(), TinyQwenImageConfig(2)).ok());
  const auto source = CheckpointSource::Open(directory.path(), "");
  ASSERT_TRUE(source.ok());
  const DescribedBlock block = DescribeQwenImageBlock(TinyQwenImageConfig(2), 1);
  for (const Dtype dtype : {Dtype::kBFloat16, Dtype::kFloat32}) {
    const offload::BlockProfile profile = PackBlock(block, dtype);
    std::vector<std::byte> packed(static_cast<size_t>(profile.bytes), std::byte{0xee});
    ASSERT_TRUE(ReadPackedBlock(**source, block, profile, dtype, absl::MakeSpan(packed)).ok());
    std::vector<std::byte> expected(packed.size(), std::byte{0});
    for (size_t i = 0; i < block.tensors.size(); ++i) {
      const auto place =
          absl::MakeSpan(expected).subspan(static_cast<size_t>(profile.tensors[i].offset),
                                           static_cast<size_t>(profile.tensors[i].bytes));
      ASSERT_TRUE((*source)->Read(block.tensors[i].name, dtype, place).ok());
    }
    EXPECT_EQ(packed, expected);
  }
}

TEST(BlockPackingTest, RefusesADestinationOfAnotherSize) {
  const TempDirectory directory;
  ASSERT_TRUE(WriteTinyCheckpoint(directory.path(), TinyQwenImageConfig(1)).ok());
  const auto source = CheckpointSource::Open(directory.path(), "");
  const DescribedBlock block = DescribeQwenImageBlock(TinyQwenImageConfig(1), 0);
  const offload::BlockProfile profile = PackBlock(block, Dtype::kBFloat16);
  std::vector<std::byte> small(static_cast<size_t>(profile.bytes) - 1);
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadPackedBlock(**source, block, profile, Dtype::kBFloat16, absl::MakeSpan(small))));
}

}  // namespace
}  // namespace blockswap::worker
