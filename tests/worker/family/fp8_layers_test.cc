// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/worker/data/temp_directory.h"
#include "tests/worker/data/tiny_checkpoint.h"
#include "worker/family/family.h"
#include "worker/family/qwen_image_family.h"
#include "worker/family/qwen_image_layout.h"
#include "worker/io/atomic_file.h"
#include "worker/io/float_conversion.h"
#include "worker/io/fp8_scaled.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

std::set<std::string> QuantisedNames(const ModelDescription& model) {
  std::set<std::string> names;
  for (const DescribedBlock& block : model.blocks) {
    for (const TensorSpec& tensor : block.tensors) {
      if (tensor.fp8.has_value()) names.insert(tensor.name);
    }
  }
  return names;
}

class Fp8LayersTest : public ::testing::Test {
 protected:
  // Writes the tensors with a config and describes them.
  absl::StatusOr<ModelDescription> Describe(const std::vector<TinyTensor>& tensors,
                                            Quantization quantization = Quantization::kFp8Scaled) {
    EXPECT_TRUE(WriteTinyTensors(directory_.Path("model.safetensors"), tensors).ok());
    EXPECT_TRUE(WriteFileAtomically(directory_.Path("config.json"), ConfigJson(config_)).ok());
    auto source = CheckpointSource::Open(directory_.path(), "");
    if (!source.ok()) return source.status();
    source_ = *std::move(source);
    return DescribeModel(family_, *source_, Dtype::kBFloat16, quantization);
  }

  // The tensors with one linear stored as codes, scales of `scale_shape` beside them.
  std::vector<TinyTensor> WithStoredCodes(const std::string& linear,
                                          const std::vector<int64_t>& scale_shape) const {
    std::vector<TinyTensor> tensors = TinyQwenImageTensors(config_);
    for (TinyTensor& tensor : tensors) {
      if (tensor.name == linear + ".weight") tensor.type = StoredType::kF8E4M3;
    }
    if (!scale_shape.empty()) tensors.push_back({linear + ".scale_weight", scale_shape});
    return tensors;
  }

  const TempDirectory directory_;
  const QwenImageConfig config_ = TinyQwenImageConfig(2);
  const QwenImageFamily family_;
  std::shared_ptr<CheckpointSource> source_;
};

// F075: which layers are quantised is a matter of names alone: 14 linears a block, the modulation
// too, no norm and nothing outside the blocks.
TEST_F(Fp8LayersTest, QuantisesTheLinearsOfTheBlocksAndNothingElse) {
  const auto model = Describe(TinyQwenImageTensors(config_));
  ASSERT_TRUE(model.ok()) << model.status();
  const std::set<std::string> names = QuantisedNames(*model);
  EXPECT_EQ(names.size(), 2u * 14u);
  EXPECT_EQ(names.count("transformer_blocks.0.img_mod.1.weight"), 1u);
  EXPECT_EQ(names.count("transformer_blocks.1.attn.to_out.0.weight"), 1u);
  for (const std::string& name : names) {
    EXPECT_TRUE(absl::StrContains(name, "transformer_blocks"));
    EXPECT_FALSE(absl::StrContains(name, "norm"));
    EXPECT_TRUE(absl::EndsWith(name, ".weight"));
  }
  for (const TensorSpec& tensor : model->edge_tensors) EXPECT_FALSE(tensor.fp8.has_value());
  EXPECT_EQ(model->quantization, Quantization::kFp8Scaled);
  // Width 32 has no whole block of 64, the inner width of the MLP, 128, has two: 2 linears of 14.
  EXPECT_THAT(
      QuantizationText(*model),
      HasSubstr("28 of 28 linears in the blocks (0 stored so, 28 made while reading; 4 with"));
}

TEST_F(Fp8LayersTest, APlainModelStaysPlain) {
  const auto model = Describe(TinyQwenImageTensors(config_), Quantization::kNone);
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(QuantisedNames(*model).empty());
  EXPECT_EQ(model->quantization, Quantization::kNone);
  EXPECT_EQ(QuantizationText(*model), "");
}

TEST_F(Fp8LayersTest, StoredCodesStayCodesWhateverIsAskedFor) {
  const std::string linear = "transformer_blocks.1.img_mlp.net.2";
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{32, 2, 1}, {32, 1}, {1}}) {
    const auto model = Describe(WithStoredCodes(linear, shape), Quantization::kNone);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(QuantisedNames(*model), std::set<std::string>{linear + ".weight"});
    EXPECT_EQ(model->quantization, Quantization::kFp8Scaled);
  }
}

// F077: refused at load, by name, with both shapes.
TEST_F(Fp8LayersTest, RefusesScalesThatDoNotDivideTheirWeight) {
  const std::string linear = "transformer_blocks.0.attn.to_q";
  const auto model = Describe(WithStoredCodes(linear, {32, 3, 1}));
  EXPECT_THAT(model.status().ToString(),
              HasSubstr("misshapen, such as \"transformer_blocks.0.attn.to_q.weight\" (scales of "
                        "shape [32, 3, 1] do not divide a weight of shape [32, 32]"));
}

TEST_F(Fp8LayersTest, RefusesCodesWithoutScales) {
  const std::string linear = "transformer_blocks.0.attn.to_q";
  const auto model = Describe(WithStoredCodes(linear, {}));
  EXPECT_THAT(model.status().ToString(),
              HasSubstr("type F8_E4M3 without scales: no "
                        "\"transformer_blocks.0.attn.to_q.scale_weight\""));
}

// F074: a file that was cast as a whole is codes in memory, too; its values are what the codes say.
TEST_F(Fp8LayersTest, AFileCastWithoutScalesStaysCodesWithOneScaleOfOne) {
  std::vector<TinyTensor> tensors = TinyQwenImageTensors(config_);
  for (TinyTensor& tensor : tensors) tensor.type = StoredType::kF8E4M3;  // norms and edges, too
  const auto model = Describe(tensors, Quantization::kNone);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(QuantisedNames(*model).size(), 2u * 14u);
  EXPECT_THAT(QuantizationText(*model), HasSubstr("fp8 without scales: the 28 linears"));
  const DescribedBlock& block = model->blocks[1];
  for (const TensorSpec& tensor : block.tensors) {
    const int64_t bytes = PackedTensorBytes(tensor, Dtype::kBFloat16);
    std::vector<std::byte> packed(static_cast<size_t>(bytes));
    ASSERT_TRUE(ReadPackedTensor(*source_, tensor, Dtype::kBFloat16, absl::MakeSpan(packed)).ok());
    int64_t values = 1;
    for (const int64_t side : tensor.shape) values *= side;
    std::vector<float> read(static_cast<size_t>(values)), widened(read.size());
    ASSERT_TRUE(source_
                    ->Read(tensor.name, Dtype::kFloat32,
                           absl::MakeSpan(reinterpret_cast<std::byte*>(read.data()),
                                          read.size() * sizeof(float)))
                    .ok());
    if (!tensor.fp8.has_value()) continue;  // a bias or a norm: in the model's type
    EXPECT_LT(bytes, values + offload::kTensorAlignment + 256);
    DequantiseFp8(*tensor.fp8, packed.data(), packed.data() + Fp8ScaleOffset(*tensor.fp8),
                  StoredType::kF32, 0, tensor.fp8->num_scales,
                  reinterpret_cast<std::byte*>(widened.data()));
    for (size_t i = 0; i < read.size(); ++i) {
      const float value = WidenFloat8E4M3(static_cast<uint8_t>(packed[i]));
      ASSERT_EQ(read[i], value) << tensor.name;
      ASSERT_EQ(widened[i], value) << tensor.name;
    }
  }
}

TEST_F(Fp8LayersTest, RefusesScalesBesideAPlainWeight) {
  std::vector<TinyTensor> tensors = TinyQwenImageTensors(config_);
  tensors.push_back({"transformer_blocks.0.attn.to_q.scale_weight", {1}});
  EXPECT_THAT(Describe(tensors).status().ToString(),
              HasSubstr("unknown, such as \"transformer_blocks.0.attn.to_q.scale_weight\""));
}

// Codes, scales and bias of a linear are one run of bytes; the scales cannot be parted from the
// codes, because they are one tensor.
TEST_F(Fp8LayersTest, PacksCodesScalesAndBiasSideBySide) {
  const auto model = Describe(TinyQwenImageTensors(config_));
  ASSERT_TRUE(model.ok());
  const DescribedBlock& block = model->blocks[0];
  const offload::BlockProfile packed = PackBlock(block, Dtype::kBFloat16);
  const offload::BlockProfile plain = PackBlock(
      Describe(TinyQwenImageTensors(config_), Quantization::kNone)->blocks[0], Dtype::kBFloat16);
  ASSERT_EQ(packed.tensors.size(), plain.tensors.size()) << "tensor indices are of the family";
  for (size_t i = 0; i < block.tensors.size(); ++i) {
    const TensorSpec& tensor = block.tensors[i];
    const bool is_weight = i < 28 && i % 2 == 0;
    EXPECT_EQ(tensor.fp8.has_value(), is_weight) << tensor.name;
    if (!is_weight) {
      EXPECT_EQ(packed.tensors[i].bytes, plain.tensors[i].bytes);
      continue;
    }
    const int64_t values = tensor.shape[0] * tensor.shape[1];
    EXPECT_EQ(Fp8ScaleOffset(*tensor.fp8) % offload::kTensorAlignment, 0);
    EXPECT_EQ(packed.tensors[i].bytes, (values + 255) / 256 * 256 + tensor.fp8->num_scales * 2);
    EXPECT_EQ(packed.tensors[i + 1].offset,
              packed.tensors[i].offset + (packed.tensors[i].bytes + 255) / 256 * 256);
  }
  EXPECT_LT(packed.bytes, plain.bytes);
}

TEST_F(Fp8LayersTest, FullSizeBlocksShrinkToHalfAndAThirtySecond) {
  DescribedBlock block = DescribeQwenImageBlock(QwenImageConfig(), 0);
  const int64_t plain = PackBlock(block, Dtype::kBFloat16).bytes;
  int64_t weights = 0;
  for (TensorSpec& tensor : block.tensors) {
    if (tensor.shape.size() != 2) continue;
    tensor.fp8 = MakeFp8Format(StoredType::kBF16, tensor.shape);
    weights += tensor.shape[0] * tensor.shape[1];
  }
  EXPECT_EQ(PackBlock(block, Dtype::kBFloat16).bytes, plain - weights + weights / 32);
}

TEST_F(Fp8LayersTest, ReadsCodesAndScalesToTheirPlaces) {
  const auto model = Describe(TinyQwenImageTensors(config_));
  ASSERT_TRUE(model.ok());
  const TensorSpec& tensor = model->blocks[0].tensors[18];  // img_mlp.net.2.weight
  ASSERT_EQ(tensor.fp8->run, 64);
  const auto bytes = static_cast<size_t>(PackedTensorBytes(tensor, Dtype::kBFloat16));
  std::vector<std::byte> expected(bytes), actual(bytes, std::byte{0xee});
  const auto scales = static_cast<size_t>(Fp8ScaleOffset(*tensor.fp8));
  ASSERT_TRUE(source_
                  ->ReadFp8(tensor.name, *tensor.fp8, absl::MakeSpan(expected).first(32 * 128),
                            absl::MakeSpan(expected).subspan(scales))
                  .ok());
  ASSERT_TRUE(ReadPackedTensor(*source_, tensor, Dtype::kBFloat16, absl::MakeSpan(actual)).ok());
  EXPECT_EQ(actual, expected);
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadPackedTensor(*source_, tensor, Dtype::kBFloat16, absl::MakeSpan(actual).first(10))));
}

}  // namespace
}  // namespace blockswap::worker
