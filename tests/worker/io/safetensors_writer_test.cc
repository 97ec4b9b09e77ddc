// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/worker/data/temp_directory.h"
#include "worker/io/float_conversion.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::array<std::byte, 4> kBytes = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

TensorToWrite Bytes(const std::string& name) { return {name, StoredType::kU8, {4}, kBytes}; }

TEST(WriteSafetensorsTest, ReadsBackWhatItWrote) {
  const TempDirectory directory;
  const std::string path = directory.Path("a.safetensors");
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"quote", "\"\n\u00e9"}};
  ASSERT_TRUE(WriteSafetensors(path, {Bytes("z"), Bytes("a\"b")}, metadata).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->metadata(), metadata);
  EXPECT_EQ((*file)->tensors().at("z").offset, 0) << "data lies in the order given";
  EXPECT_EQ((*file)->bytes((*file)->tensors().at("a\"b"))[3], std::byte{4});
  EXPECT_THAT(directory.Names(), ElementsAre("a.safetensors"));
}

TEST(WriteSafetensorsTest, StartsTheDataAtAMultipleOfEight) {
  const TempDirectory directory;
  for (int length = 1; length < 9; ++length) {
    const std::string path = directory.Path("a.safetensors");
    ASSERT_TRUE(
        WriteSafetensors(path, {Bytes(std::string(static_cast<size_t>(length), 'n'))}, {}).ok());
    EXPECT_EQ((ReadFile(path).size() - kBytes.size()) % 8, 0u);
  }
}

// F109: the writer makes a valid file even without tensors.
TEST(WriteSafetensorsTest, WritesMetadataWithoutTensors) {
  const TempDirectory directory;
  const std::string path = directory.Path("a.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, {}, {{"k", "v"}}).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->metadata().at("k"), "v");
  ASSERT_TRUE(WriteSafetensors(path, {}, {}).ok());
  EXPECT_TRUE(SafetensorsFile::Open(path).ok());
}

TEST(WriteSafetensorsTest, RefusesWrongTensorsAndKeepsTheOlderFile) {
  const TempDirectory directory;
  const std::string path = directory.Write("a.safetensors", "older");
  TensorToWrite wrong = Bytes("w");
  wrong.shape = {5};
  const absl::Status size = WriteSafetensors(path, {wrong}, {});
  EXPECT_THAT(size.ToString(), HasSubstr("its shape takes 5 bytes, given are 4"));
  EXPECT_THAT(WriteSafetensors(path, {Bytes("a"), Bytes("a")}, {}).ToString(),
              HasSubstr("appears twice"));
  EXPECT_EQ(ReadFile(path), "older");
  EXPECT_THAT(directory.Names(), ElementsAre("a.safetensors"));
}

TEST(WriteSafetensorsTest, NamesADirectoryThatIsMissing) {
  const TempDirectory directory;
  const absl::Status status =
      WriteSafetensors(directory.Path("no/a.safetensors"), {Bytes("a")}, {});
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
}

TEST(WriteSafetensorsTest, NarrowsWhatIsHeldWide) {
  const TempDirectory directory;
  const std::string path = directory.Path("a.safetensors");
  std::vector<float> values(300'001);  // more than one piece
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f + static_cast<float>(i) * 0.37f;
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(values.data()),
                                          values.size() * sizeof(float));
  const auto count = static_cast<int64_t>(values.size());
  const TensorToWrite narrow{"n", StoredType::kBF16, {count}, bytes, StoredType::kF32};
  ASSERT_TRUE(WriteSafetensors(path, {narrow, Bytes("after")}, {}).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const TensorEntry& entry = (*file)->tensors().at("n");
  ASSERT_EQ(entry.type, StoredType::kBF16);
  ASSERT_EQ(entry.bytes, 2 * count);
  const auto* const stored = reinterpret_cast<const uint16_t*>((*file)->bytes(entry).data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(stored[i], NarrowToBFloat16(values[i])) << i;
  }
  EXPECT_EQ((*file)->bytes((*file)->tensors().at("after"))[0], std::byte{1});
}

}  // namespace
}  // namespace blockswap::worker
