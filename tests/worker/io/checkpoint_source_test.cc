// SPDX-License-Identifier: Apache-2.0
#include "worker/io/checkpoint_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/worker/data/temp_directory.h"
#include "tests/worker/data/tiny_checkpoint.h"
#include "worker/io/float_conversion.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

std::vector<TinyTensor> Renamed(std::vector<TinyTensor> tensors, const std::string& prefix) {
  for (TinyTensor& tensor : tensors) tensor.name = prefix + tensor.name;
  return tensors;
}

std::string ErrorOf(const std::string& path) {
  const auto source = CheckpointSource::Open(path, "");
  return source.ok() ? "opened" : source.status().ToString();
}

// F037: one known prefix is stripped whatever it is.
TEST(CheckpointSourceTest, StripsEveryKnownPrefix) {
  const TempDirectory directory;
  const auto tensors = TinyQwenImageTensors(TinyQwenImageConfig(2));
  for (const char* prefix :
       {"", "model.diffusion_model.", "diffusion_model.", "model.", "net.", "transformer."}) {
    const std::string path = directory.Path("w.safetensors");
    ASSERT_TRUE(WriteTinyTensors(path, Renamed(tensors, prefix)).ok());
    const auto source = CheckpointSource::Open(path, "");
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->stripped_prefix(), prefix);
    EXPECT_EQ((*source)->tensors().size(), tensors.size());
    EXPECT_EQ((*source)->tensors().count("transformer_blocks.1.attn.to_q.weight"), 1u);
  }
}

// F037: a mixture is three lines with counts and two examples, not a list of thousands.
TEST(CheckpointSourceTest, RefusesMixedPrefixesInThreeLines) {
  const TempDirectory directory;
  auto tensors = TinyQwenImageTensors(TinyQwenImageConfig(2));
  for (size_t i = 0; i < 7; ++i) tensors[i].name = "model.diffusion_model." + tensors[i].name;
  tensors[8].name = "net." + tensors[8].name;
  const std::string path = directory.Path("w.safetensors");
  ASSERT_TRUE(WriteTinyTensors(path, tensors).ok());
  const std::string error = ErrorOf(path);
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 2) << error;
  EXPECT_THAT(error, HasSubstr("mixes 3 kinds of tensor names"));
  EXPECT_THAT(error,
              HasSubstr(absl::StrCat(tensors.size() - 8, " without a known prefix, such as \"")));
  EXPECT_THAT(error,
              HasSubstr("7 with the prefix \"model.diffusion_model.\", such as \"model.diff"));
}

// Every form but musubi's fp8_scaled is refused by its name, before a tensor is read as what it is
// not.
TEST(CheckpointSourceTest, RefusesOtherQuantisedFormsByName) {
  const TempDirectory directory;
  const std::string linear = "transformer_blocks.0.attn.to_q";
  const std::pair<std::string, std::string> forms[] = {
      {"scaled_fp8", "ComfyUI's scaled fp8"},
      {linear + ".comfy_quant", "ComfyUI's mixed quantisation"},
      {linear + ".weight_scale", "fp8 with weight_scale keys"},
      {linear + ".weight_scale_inv", "fp8 with inverse scales"},
      {linear + ".scale_input", "fp8 with scaled inputs"},
      {linear + ".weight.absmax", "bitsandbytes"}};
  for (const auto& [extra, format] : forms) {
    auto tensors = TinyQwenImageTensors(TinyQwenImageConfig(1));
    tensors.push_back({linear + ".scale_weight", {1}, StoredType::kF32});
    tensors.push_back({extra, {1}, StoredType::kF32});
    const std::string path = directory.Path("w.safetensors");
    ASSERT_TRUE(WriteTinyTensors(path, tensors).ok());
    EXPECT_THAT(ErrorOf(path),
                HasSubstr(absl::StrCat("quantised weights: ", format, " (1 keys such as")));
    EXPECT_THAT(ErrorOf(path), HasSubstr("use the bf16 or fp32 file"));
  }
}

// One linear of a file of musubi's fp8_scaled: two rows, one scale per 64 inputs.
class Fp8FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < codes_.size(); ++i) codes_[i] = static_cast<std::byte>(i % 120);
    ASSERT_TRUE(ConvertFloats(StoredType::kF32,
                              absl::MakeConstSpan(reinterpret_cast<const std::byte*>(kScales), 16),
                              StoredType::kBF16, absl::MakeSpan(scales_))
                    .ok());
    ASSERT_TRUE(WriteSafetensors(directory_.Path("w.safetensors"),
                                 {{"l.weight", StoredType::kF8E4M3, {2, 128}, codes_},
                                  {"l.scale_weight", StoredType::kBF16, {2, 2, 1}, scales_},
                                  {"bare.weight", StoredType::kF8E4M3, {2, 128}, codes_}},
                                 {})
                    .ok());
    auto source = CheckpointSource::Open(directory_.Path("w.safetensors"), "");
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
  }

  static constexpr float kScales[4] = {0.5f, 2.0f, 0.25f, 1.0f};
  const TempDirectory directory_;
  std::vector<std::byte> codes_ = std::vector<std::byte>(256);
  std::vector<std::byte> scales_ = std::vector<std::byte>(8);
  std::shared_ptr<CheckpointSource> source_;
};

TEST_F(Fp8FileTest, CodesAndScalesAreReadAsTheyLie) {
  ASSERT_NE(source_->FindFp8Scale("l.weight"), nullptr);
  EXPECT_EQ(source_->FindFp8Scale("bare.weight"), nullptr);
  const auto format = ReadFp8Format({2, 128}, source_->FindFp8Scale("l.weight")->entry);
  ASSERT_TRUE(format.ok());
  std::vector<std::byte> codes(256), scales(8);
  ASSERT_TRUE(
      source_->ReadFp8("l.weight", *format, absl::MakeSpan(codes), absl::MakeSpan(scales)).ok());
  EXPECT_EQ(codes, codes_);
  EXPECT_EQ(scales, scales_);
  EXPECT_TRUE(absl::IsInvalidArgument(source_->ReadFp8(
      "l.weight", *format, absl::MakeSpan(codes).first(255), absl::MakeSpan(scales))));
}

TEST_F(Fp8FileTest, APlainReadMultipliesCodesWithTheirScales) {
  std::vector<float> values(256);
  const auto bytes = absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), 1024);
  ASSERT_TRUE(source_->Read("l.weight", Dtype::kFloat32, bytes).ok());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i], WidenFloat8E4M3(static_cast<uint8_t>(i % 120)) * kScales[i / 64]);
  }
  EXPECT_TRUE(
      absl::IsInvalidArgument(source_->Read("l.weight", Dtype::kFloat32, bytes.first(1020))));
}

TEST_F(Fp8FileTest, CodesWithoutScalesAreTheValuesThemselves) {
  std::vector<float> values(256);
  ASSERT_TRUE(source_
                  ->Read("bare.weight", Dtype::kFloat32,
                         absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), 1024))
                  .ok());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i], WidenFloat8E4M3(static_cast<uint8_t>(i % 120)));
  }
}

class ShardsTest : public ::testing::Test {
 protected:
  // Two shards and their index, the tensors dealt in turn.
  void SetUp() override {
    tensors_ = TinyQwenImageTensors(TinyQwenImageConfig(1));
    std::vector<TinyTensor> shards[2];
    std::string map;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      shards[i % 2].push_back(tensors_[i]);
      absl::StrAppend(&map, map.empty() ? "" : ",", "\"", tensors_[i].name, "\":\"s", i % 2,
                      ".safetensors\"");
    }
    ASSERT_TRUE(WriteTinyTensors(directory_.Path("s0.safetensors"), shards[0]).ok());
    ASSERT_TRUE(WriteTinyTensors(directory_.Path("s1.safetensors"), shards[1]).ok());
    map_ = map;
    index_ =
        directory_.Write("m.safetensors.index.json", absl::StrCat("{\"weight_map\":{", map, "}}"));
  }

  TempDirectory directory_;
  std::vector<TinyTensor> tensors_;
  std::string map_, index_;
};

TEST_F(ShardsTest, AreReadThroughTheIndexAndThroughTheDirectory) {
  directory_.Write("config.json", "{\"num_layers\": 1}");
  for (const std::string& path : {index_, directory_.path()}) {
    const auto source = CheckpointSource::Open(path, "");
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ((*source)->tensors().size(), tensors_.size());
  }
  EXPECT_EQ((*CheckpointSource::Open(directory_.path(), ""))->config_json(), "{\"num_layers\": 1}");
  EXPECT_EQ((*CheckpointSource::Open(index_, ""))->config_json(), "");
}

TEST_F(ShardsTest, ThatAreMissingAreListed) {
  ASSERT_EQ(remove(directory_.Path("s1.safetensors").c_str()), 0);
  EXPECT_THAT(ErrorOf(index_), HasSubstr("1 of 2 shards are missing: s1.safetensors"));
}

TEST_F(ShardsTest, MayNotLieElsewhere) {
  for (const char* shard : {"../s0.safetensors", "/etc/passwd", "a/b.safetensors", "s0.bin", "",
                            ".hidden.safetensors"}) {
    directory_.Write("m.safetensors.index.json",
                     absl::StrCat("{\"weight_map\":{\"x\":\"", shard, "\"}}"));
    EXPECT_THAT(ErrorOf(index_), HasSubstr("must be the plain name")) << shard;
  }
}

TEST_F(ShardsTest, MustAgreeWithTheIndex) {
  directory_.Write("m.safetensors.index.json",
                   absl::StrCat("{\"weight_map\":{", map_, ",\"ghost\":\"s0.safetensors\"}}"));
  EXPECT_THAT(ErrorOf(index_), HasSubstr("tensor \"ghost\" is in the index but not in its shard"));
  const std::string without_first = map_.substr(map_.find(',') + 1);
  directory_.Write("m.safetensors.index.json",
                   absl::StrCat("{\"weight_map\":{", without_first, "}}"));
  EXPECT_THAT(ErrorOf(index_), HasSubstr("is not in the index"));
  ASSERT_TRUE(WriteTinyTensors(directory_.Path("s1.safetensors"), tensors_).ok());
  directory_.Write("m.safetensors.index.json", absl::StrCat("{\"weight_map\":{", map_, "}}"));
  EXPECT_THAT(ErrorOf(index_), HasSubstr("is in two shards"));
}

TEST(CheckpointSourceTest, RefusesADirectoryWithSeveralFilesAndNoIndex) {
  const TempDirectory directory;
  const auto tensors = TinyQwenImageTensors(TinyQwenImageConfig(1));
  ASSERT_TRUE(WriteTinyTensors(directory.Path("a.safetensors"), tensors).ok());
  ASSERT_TRUE(WriteTinyTensors(directory.Path("b.safetensors"), tensors).ok());
  EXPECT_THAT(ErrorOf(directory.path()), HasSubstr("must hold one .safetensors file"));
}

TEST(CheckpointSourceTest, FindsTheTransformerOfAPipeline) {
  const TempDirectory directory;
  directory.Write("model_index.json", "{}");
  ASSERT_TRUE(WriteTinyCheckpoint(directory.Path("transformer"), TinyQwenImageConfig(1)).ok());
  const auto source = CheckpointSource::Open(directory.path(), "");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT((*source)->config_json(), HasSubstr("QwenImageTransformer2DModel"));
}

TEST(CheckpointSourceTest, ReadsTensorsInTheTypeAskedFor) {
  const TempDirectory directory;
  const std::string path = directory.Path("w.safetensors");
  ASSERT_TRUE(WriteTinyTensors(path, {{"a", {2, 3}, StoredType::kF32}}).ok());
  const auto source = CheckpointSource::Open(path, "");
  ASSERT_TRUE(source.ok());
  std::vector<float> wide(6);
  std::vector<uint16_t> narrow(6);
  ASSERT_TRUE((*source)
                  ->Read("a", Dtype::kFloat32,
                         absl::MakeSpan(reinterpret_cast<std::byte*>(wide.data()), 24))
                  .ok());
  ASSERT_TRUE((*source)
                  ->Read("a", Dtype::kBFloat16,
                         absl::MakeSpan(reinterpret_cast<std::byte*>(narrow.data()), 12))
                  .ok());
  for (size_t i = 0; i < 6; ++i) {
    const auto cut = std::bit_cast<float>(uint32_t{narrow[i]} << 16);
    EXPECT_NEAR(cut, wide[i], std::abs(wide[i]) / 256 + 1e-9f);
  }
  EXPECT_TRUE(absl::IsNotFound((*source)->Read("b", Dtype::kFloat32, {})));
  EXPECT_TRUE(absl::IsInvalidArgument((*source)->Read("a", Dtype::kFloat32, {})));
}

// A conversion goes piece by piece: every value is right across the pieces.
TEST(CheckpointSourceTest, ConvertsTensorsLargerThanOnePiece) {
  const TempDirectory directory;
  constexpr size_t kValues = 3'000'001;  // 12 MB
  std::vector<float> values(kValues);
  for (size_t i = 0; i < kValues; ++i) values[i] = static_cast<float>(i % 65'521) - 30'000;
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  const std::string path = directory.Path("w.safetensors");
  ASSERT_TRUE(
      WriteSafetensors(path, {{"x", StoredType::kF32, {kValues}, {bytes, kValues * 4}}}, {}).ok());
  const auto source = *CheckpointSource::Open(path, "");
  std::vector<uint16_t> narrow(kValues);
  ASSERT_TRUE(source
                  ->Read("x", Dtype::kBFloat16,
                         absl::MakeSpan(reinterpret_cast<std::byte*>(narrow.data()), kValues * 2))
                  .ok());
  for (size_t i = 0; i < kValues; ++i) {
    ASSERT_EQ(narrow[i], NarrowToBFloat16(values[i])) << i;
  }
  EXPECT_EQ(source
                ->Read("x", Dtype::kBFloat16,
                       absl::MakeSpan(reinterpret_cast<std::byte*>(narrow.data()), kValues))
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CheckpointSourceTest, TheIdentityChangesWithTheFileAndNotWithItsName) {
  const TempDirectory directory;
  const auto tensors = TinyQwenImageTensors(TinyQwenImageConfig(2));
  const std::string path = directory.Path("w.safetensors");
  ASSERT_TRUE(WriteTinyTensors(path, tensors).ok());
  const std::string identity = *(*CheckpointSource::Open(path, ""))->Identity();
  EXPECT_EQ(identity.size(), 64u);
  EXPECT_EQ(*(*CheckpointSource::Open(path, ""))->Identity(), identity);
  std::filesystem::create_symlink(path, directory.Path("link.safetensors"));
  EXPECT_EQ(*(*CheckpointSource::Open(directory.Path("link.safetensors"), ""))->Identity(),
            identity);
  ASSERT_TRUE(WriteTinyTensors(path, tensors).ok());  // the same bytes in another file
  EXPECT_NE(*(*CheckpointSource::Open(path, ""))->Identity(), identity);
}

TEST(CheckpointSourceTest, TheChosenReadModeGivesTheSameBytesAndSaysWhatItMeasured) {
  const TempDirectory directory;
  const std::string path = directory.Path("w.safetensors");
  const auto tensors = TinyQwenImageTensors(TinyQwenImageConfig(2));
  ASSERT_TRUE(WriteTinyTensors(path, tensors).ok());
  const auto source = *CheckpointSource::Open(path, "");
  const auto read = [&](const std::string& name) {
    std::vector<std::byte> bytes(static_cast<size_t>(source->tensors().at(name).entry.bytes));
    EXPECT_TRUE(source->Read(name, Dtype::kBFloat16, absl::MakeSpan(bytes)).ok());
    return bytes;
  };
  std::map<std::string, std::vector<std::byte>> before;
  for (const TinyTensor& tensor : tensors) before[tensor.name] = read(tensor.name);
  source->ChooseReadMode();
  EXPECT_THAT(source->read_mode_text(), HasSubstr("measured"));
  EXPECT_GT(source->file_bytes_per_second(), 0);
  for (const TinyTensor& tensor : tensors) {
    source->WillNeed(tensor.name);
    EXPECT_EQ(read(tensor.name), before[tensor.name]) << tensor.name;
  }
}

}  // namespace
}  // namespace blockswap::worker
