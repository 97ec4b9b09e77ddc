// SPDX-License-Identifier: Apache-2.0
#include "worker/family/qwen_image_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

#include "absl/strings/str_replace.h"
#include "tests/worker/data/temp_directory.h"
#include "tests/worker/data/tiny_checkpoint.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;

class QwenImageFamilyTest : public ::testing::Test {
 protected:
  absl::StatusOr<ModelDescription> Describe(const std::vector<TinyTensor>& tensors,
                                            const std::string& config) {
    const std::string path = directory_.Path("w.safetensors");
    EXPECT_TRUE(WriteTinyTensors(path, tensors).ok());
    const std::string config_path = config.empty() ? "" : directory_.Write("config.json", config);
    const auto source = CheckpointSource::Open(path, config_path);
    if (!source.ok()) return source.status();
    return family_.Describe(**source, Dtype::kBFloat16);
  }

  const TempDirectory directory_;
  const QwenImageFamily family_;
  const QwenImageConfig config_ = TinyQwenImageConfig(3);
  const std::vector<TinyTensor> tensors_ = TinyQwenImageTensors(config_);
};

TEST_F(QwenImageFamilyTest, DescribesTensorsInTheOrderThatLeasesRelyOn) {
  const auto model = Describe(tensors_, ConfigJson(config_));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->blocks.size(), 3u);
  EXPECT_EQ(model->max_blocks_to_swap, 2);
  EXPECT_EQ(model->latent_channels, 2);
  EXPECT_EQ(model->text_features, 24);
  ASSERT_EQ(model->lists.size(), 1u);
  EXPECT_EQ(model->lists[0].max_streamed, 2);
  const DescribedBlock& block = model->blocks[2];
  ASSERT_EQ(block.linears.size(), 14u);
  ASSERT_EQ(block.tensors.size(), 32u);
  for (size_t slot = 0; slot < block.linears.size(); ++slot) {
    const AdapterTarget& linear = block.linears[slot];
    EXPECT_EQ(block.tensors[2 * slot].name, linear.path + ".weight");
    EXPECT_EQ(block.tensors[2 * slot + 1].name, linear.path + ".bias");
    EXPECT_EQ(block.tensors[2 * slot].shape,
              (std::vector<int64_t>{linear.out_features, linear.in_features}));
    EXPECT_EQ(linear.slot, static_cast<int>(slot));
    EXPECT_EQ(linear.block, 2);
  }
  EXPECT_EQ(block.tensors[28].name, "transformer_blocks.2.attn.norm_q.weight");
  EXPECT_EQ(block.tensors[31].name, "transformer_blocks.2.attn.norm_added_k.weight");
  EXPECT_EQ(model->edge_tensors[4].name, "txt_norm.weight");
  EXPECT_EQ(model->edge_tensors.back().name, "proj_out.bias");
}

// F037: missing, unknown and misshapen tensors are counted, with two examples each, in three lines.
TEST_F(QwenImageFamilyTest, CountsTensorsThatDoNotFit) {
  auto tensors = tensors_;
  tensors.erase(tensors.begin() + 30, tensors.begin() + 40);
  tensors[0].shape[0] += 1;
  for (const char* extra : {"lora_a", "lora_b", "lora_c"}) tensors.push_back({extra, {1}});
  const auto model = Describe(tensors, ConfigJson(config_));
  EXPECT_TRUE(absl::IsInvalidArgument(model.status()));
  const std::string error = model.status().ToString();
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 2) << error;
  EXPECT_THAT(error, HasSubstr("10 tensors missing, 3 unknown, 1 of another shape"));
  EXPECT_THAT(error, HasSubstr("unknown, such as \"lora_a\" and \"lora_b\""));
  EXPECT_THAT(error, HasSubstr("\"img_in.weight\" ([33, 8], expected [32, 8])"));
}

TEST_F(QwenImageFamilyTest, RefusesStoredTypesItCannotRead) {
  auto tensors = tensors_;
  tensors[20].type = StoredType::kF8E5M2;
  EXPECT_THAT(Describe(tensors, ConfigJson(config_)).status().ToString(),
              HasSubstr("(type F8_E5M2, only F32, F16, BF16 and F8_E4M3 with scales are read)"));
  tensors[20].type = StoredType::kF8E4M3;
  EXPECT_THAT(Describe(tensors, ConfigJson(config_)).status().ToString(),
              HasSubstr("(type F8_E4M3 without scales"));
}

TEST_F(QwenImageFamilyTest, RefusesOptionsThatAreNotAvailable) {
  for (const char* option : {"guidance_embeds", "use_additional_t_cond", "use_layer3d_rope"}) {
    const std::string config = absl::StrReplaceAll(
        ConfigJson(config_), {{"{", std::string("{\"") + option + "\": true, "}});
    EXPECT_THAT(Describe(tensors_, config).status().ToString(),
                HasSubstr(std::string(option) + " is true, which is not available"));
  }
}

TEST_F(QwenImageFamilyTest, RefusesBadConfigValues) {
  struct Case {
    const char *from, *to, *expected;
  };
  const Case cases[] = {
      {"\"num_layers\": 3", "\"num_layers\": 0",
       "num_layers must be a whole number from 1 to 10000, is 0"},
      {"\"num_layers\": 3", "\"num_layers\": \"3\"", "is \"3\""},
      {"\"num_layers\": 3", "\"num_layers\": 1e300", "num_layers must be"},
      {"\"in_channels\": 8", "\"in_channels\": 9", "no multiple of patch_size squared, 4"},
      {"[4, 6, 6]", "[4, 6, 8]", "axes_dims_rope sum to 18, attention_head_dim is 16"},
      {"[4, 6, 6]", "[4, 12]", "must be three even positive numbers"},
      {"[4, 6, 6]", "7", "must be three even positive numbers"},
      {"QwenImageTransformer2DModel", "FluxTransformer2DModel",
       "_class_name is \"FluxTransformer2DModel\""},
  };
  for (const Case& one : cases) {
    const std::string config = absl::StrReplaceAll(ConfigJson(config_), {{one.from, one.to}});
    EXPECT_THAT(Describe(tensors_, config).status().ToString(), HasSubstr(one.expected)) << one.to;
  }
  EXPECT_THAT(Describe(tensors_, "[1]").status().ToString(), HasSubstr("must be an object"));
  EXPECT_THAT(Describe(tensors_, "{").status().ToString(), HasSubstr("not valid JSON"));
}

TEST_F(QwenImageFamilyTest, TakesSizesFromShapesWhereThereIsNoConfig) {
  QwenImageConfig config = config_;
  config.attention_head_dim = 128;
  config.num_attention_heads = 1;
  config.num_layers = 2;
  const auto model = Describe(TinyQwenImageTensors(config), "");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->qwen_image.num_layers, 2);
  EXPECT_EQ(model->qwen_image.out_channels, 2);
  EXPECT_EQ(model->qwen_image.joint_attention_dim, 24);
  EXPECT_THAT(Describe(tensors_, "").status().ToString(), HasSubstr("name the model's config.json"))
      << "heads of 16 do not tell how RoPE splits them";
}

TEST_F(QwenImageFamilyTest, UnderstandsTheMarkerOfReferenceTimeZero) {
  auto tensors = tensors_;
  tensors.push_back({"__index_timestep_zero__", {0}, StoredType::kF32});
  const auto model = Describe(tensors, ConfigJson(config_));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->qwen_image.zero_cond_t);
}

TEST_F(QwenImageFamilyTest, ProfileCountsBytesExactlyAndScalesWithTokens) {
  const auto model = Describe(tensors_, ConfigJson(config_));
  ASSERT_TRUE(model.ok());
  const auto adapter = SelectAdapterModules(*model, family_, NetworkConfig());
  ASSERT_TRUE(adapter.ok());
  const TokenCounts small = {16, 4, 1}, large = {16, 4, 3};
  const auto profile = family_.Profile(*model, *adapter, {small});
  EXPECT_EQ(profile.blocks.size(), 3u);
  EXPECT_EQ(profile.adapter_bytes, 8 * adapter->num_parameters());
  EXPECT_EQ(profile.optimizer_bytes, 8 * adapter->num_parameters());
  EXPECT_EQ(profile.boundary_bytes, 3 * (16 + 4) * 32 * 2) << "blocks * tokens * width * two bytes";
  int64_t edge = 0;
  for (const TinyTensor& tensor : tensors_) {
    if (tensor.name.find("transformer_blocks") == 0) continue;
    int64_t count = 2;
    for (const int64_t side : tensor.shape) count *= side;
    edge += count;
  }
  EXPECT_EQ(profile.edge_bytes, edge);
  EXPECT_GT(profile.block_activation_bytes, profile.boundary_bytes / 3);
  EXPECT_GT(profile.backward_over_forward, 1.9);
  EXPECT_LT(profile.backward_over_forward, 3.6);

  const auto both = family_.Profile(*model, *adapter, {small, large});
  EXPECT_EQ(both.boundary_bytes, 3 * profile.boundary_bytes) << "at the largest bucket";
  EXPECT_NEAR(both.forward_flops, 2 * profile.forward_flops, 1) << "at the mean bucket";
  for (const offload::BlockProfile& block : profile.blocks) {
    EXPECT_GT(block.kept_activation_bytes, 10 * profile.boundary_bytes / 3);
    EXPECT_LT(block.kept_activation_bytes, profile.block_activation_bytes);
  }
  // The last block does without the text behind its attention.
  EXPECT_LT(profile.blocks.back().kept_activation_bytes,
            profile.blocks.front().kept_activation_bytes);
  EXPECT_LT(profile.last_block_activation_bytes, profile.block_activation_bytes);
  EXPECT_GT(profile.last_block_activation_bytes, profile.blocks.back().kept_activation_bytes);
  EXPECT_EQ(profile.recompute_over_forward, 1.0) << "recomputing is one forward more";
}

TEST_F(QwenImageFamilyTest, HostModulationLeavesAThirdOfABlockBehind) {
  auto model = Describe(tensors_, ConfigJson(config_));
  ASSERT_TRUE(model.ok());
  const auto before = family_.Profile(*model, {}, {});
  ASSERT_TRUE(family_.SetHostModulation(true, &*model));
  EXPECT_TRUE(model->host_modulation);
  const auto profile = family_.Profile(*model, {}, {});
  const int64_t dim = config_.dim(), weight_bytes = 6 * dim * dim * 2, bias_bytes = 6 * dim * 2;
  EXPECT_EQ(profile.host_evaluated_bytes, 3 * 2 * (weight_bytes + bias_bytes));
  const int64_t packed_bytes = 2 * (weight_bytes + 512);  // a bias of 384 bytes is padded
  for (size_t i = 0; i < profile.blocks.size(); ++i) {
    EXPECT_EQ(before.blocks[i].bytes - profile.blocks[i].bytes, packed_bytes);
    EXPECT_EQ(profile.blocks[i].tensors.size(), before.blocks[i].tensors.size());
    for (const int slot : {12, 13}) {
      EXPECT_EQ(profile.blocks[i].tensors[static_cast<size_t>(2 * slot)].bytes, 0);
      EXPECT_EQ(profile.blocks[i].tensors[static_cast<size_t>(2 * slot + 1)].bytes, 0);
    }
    EXPECT_EQ(profile.blocks[i].layers.size(), 12u);
  }
  ASSERT_TRUE(family_.SetHostModulation(false, &*model));
  EXPECT_EQ(family_.Profile(*model, {}, {}).blocks[0].bytes, before.blocks[0].bytes);
}

// Layers cover all linears and nothing else; the orders name each as often as a pass reads it.
TEST_F(QwenImageFamilyTest, LayersAreTheLinearsOfABlock) {
  const auto model = Describe(tensors_, ConfigJson(config_));
  ASSERT_TRUE(model.ok());
  for (size_t index = 0; index < model->blocks.size(); ++index) {
    const bool last = index + 1 == model->blocks.size();
    const offload::BlockProfile block = PackBlock(model->blocks[index], model->dtype);
    ASSERT_EQ(block.layers.size(), 14u);
    int64_t end = 0;
    for (size_t slot = 0; slot < block.layers.size(); ++slot) {
      const offload::LayerProfile& layer = block.layers[slot];
      EXPECT_EQ(layer.tensors,
                (std::vector<int>{static_cast<int>(2 * slot), static_cast<int>(2 * slot + 1)}));
      EXPECT_EQ(layer.offset, end);
      end = layer.offset + layer.bytes;
    }
    EXPECT_EQ(block.tensors[28].offset, end) << "the norms follow";
    std::vector<int> forward(14), backward(14);
    for (const int layer : block.forward_layers) ++forward[static_cast<size_t>(layer)];
    for (const int layer : block.backward_layers) ++backward[static_cast<size_t>(layer)];
    for (size_t layer = 0; layer < 14; ++layer) {
      const bool unread = last && (layer == 7 || layer == 10 || layer == 11);
      EXPECT_EQ(forward[layer], unread ? 0 : 1) << layer;
      EXPECT_EQ(backward[layer], unread || layer >= 12 ? 0 : 2) << layer;
    }
  }
}

// The base model of the example was written by the class itself.
TEST_F(QwenImageFamilyTest, DescribesTheExampleModel) {
  const char* root = getenv("BLOCKSWAP_SOURCE_DIR");
  if (root == nullptr) GTEST_SKIP() << "BLOCKSWAP_SOURCE_DIR is not set";
  const auto source =
      CheckpointSource::Open(std::string(root) + "/deploy/examples/digits-base", "");
  ASSERT_TRUE(source.ok()) << source.status();
  const auto model = family_.Describe(**source, Dtype::kBFloat16);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->blocks.size(), 6u);
  EXPECT_EQ(model->latent_channels, 1);
  EXPECT_EQ(PackBlock(model->blocks[0], Dtype::kBFloat16).bytes, 671'232);
}

TEST_F(QwenImageFamilyTest, FullSizeModelHasTheKnownSizes) {
  ModelDescription model;
  model.dtype = Dtype::kBFloat16;
  int64_t parameters = 0;
  for (const TinyTensor& tensor : TinyQwenImageTensors(model.qwen_image)) {
    int64_t count = 1;
    for (const int64_t side : tensor.shape) count *= side;
    parameters += count;
  }
  EXPECT_EQ(parameters, 20'430'401'088);
}

}  // namespace
}  // namespace blockswap::worker
