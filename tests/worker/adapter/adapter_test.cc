// SPDX-License-Identifier: Apache-2.0
#include "worker/adapter/adapter.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

using ::testing::HasSubstr;
using testing::MakeRandomAdapter;
using testing::MakeTinyCheckpoint;
using testing::RandomTensor;

class AdapterTest : public ::testing::Test {
 protected:
  AdapterTest()
      : model_(MakeTinyCheckpoint({}, Dtype::kFloat32).model),
        directory_(::testing::TempDir() + "/adapter-XXXXXX") {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
  }
  ~AdapterTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  static void Write(const std::string& path, const std::map<std::string, at::Tensor>& tensors) {
    std::vector<TensorToWrite> writes;
    for (const auto& [name, tensor] : tensors) {
      writes.push_back({name, StoredType::kF32, tensor.sizes().vec(),
                        absl::MakeConstSpan(static_cast<const std::byte*>(tensor.const_data_ptr()),
                                            tensor.nbytes())});
    }
    ASSERT_TRUE(WriteSafetensors(path, writes, {}).ok());
  }

  const ModelDescription model_;
  std::string directory_;
};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_F(AdapterTest, ViewsCoverTheFlatBuffersExactlyOnce) {
  const Adapter adapter = MakeRandomAdapter(model_, /*with_gradients=*/true);
  at::Tensor covered = at::zeros_like(adapter.parameters());
  int64_t sum = 0;
  for (const AdapterModule& module : adapter.layout().modules) {
    const LoraModule& lora =
        adapter.block(module.target.block).linears[static_cast<size_t>(module.target.slot)];
    EXPECT_EQ(lora.down.sizes(), at::IntArrayRef({module.rank, module.target.in_features}));
    EXPECT_EQ(lora.up.sizes(), at::IntArrayRef({module.target.out_features, module.rank}));
    EXPECT_EQ(lora.scale, 0.5);
    for (const at::Tensor& view : {lora.down, lora.up}) {
      covered.narrow(0, view.storage_offset(), view.numel()).add_(1);
      sum += view.numel();
    }
    lora.up_grad.add_(1);
    lora.down_grad.add_(1);
  }
  EXPECT_EQ(sum, adapter.layout().num_parameters());
  EXPECT_TRUE(covered.eq(1).all().item<bool>());
  EXPECT_TRUE(adapter.gradients().eq(1).all().item<bool>());
}

TEST_F(AdapterTest, StartsWithoutEffectAndWithKaimingsBound) {
  Adapter adapter = MakeRandomAdapter(model_, true);
  adapter.Initialise(42);
  double largest = 0;
  for (const AdapterModule& module : adapter.layout().modules) {
    const LoraModule& lora =
        adapter.block(module.target.block).linears[static_cast<size_t>(module.target.slot)];
    EXPECT_EQ(lora.up.abs().max().item<float>(), 0);
    const double bound = 1 / std::sqrt(static_cast<double>(module.target.in_features));
    EXPECT_LE(lora.down.abs().max().item<double>(), bound * 1.000001);
    largest = std::max(largest, lora.down.abs().max().item<double>() / bound);
    EXPECT_GT(lora.down.std().item<double>(), 0.3 * bound);
  }
  EXPECT_GT(largest, 0.95);
}

TEST_F(AdapterTest, InitialisationDependsOnTheSeedAndTheModuleOnly) {
  Adapter first = MakeRandomAdapter(model_, false), second = MakeRandomAdapter(model_, true);
  first.Initialise(42);
  second.Initialise(42);
  EXPECT_TRUE(at::equal(first.parameters(), second.parameters()));
  second.Initialise(43);
  EXPECT_FALSE(at::equal(first.parameters(), second.parameters()));
  // The same module alone starts the same.
  AdapterLayout one;
  one.modules = {first.layout().modules[17]};
  Adapter alone = Adapter::Create(model_, one, at::kCPU, false);
  alone.Initialise(42);
  const AdapterTarget& target = one.modules[0].target;
  EXPECT_TRUE(at::equal(alone.block(target.block).linears[static_cast<size_t>(target.slot)].down,
                        first.block(target.block).linears[static_cast<size_t>(target.slot)].down));
  EXPECT_FALSE(
      alone.block(target.block).linears[static_cast<size_t>((target.slot + 1) % 14)].present);
}

TEST_F(AdapterTest, AFileRoundTripIsExactAndHasMusubisNames) {
  const Adapter adapter = MakeRandomAdapter(model_, true);
  ASSERT_TRUE(adapter.Save(Path("a.safetensors"), Dtype::kFloat32, {{"ss_network_dim", "4"}}).ok());
  const auto file = SafetensorsFile::Open(Path("a.safetensors"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->tensors().size(), 3u * 14 * 6);
  EXPECT_EQ((*file)->metadata().at("ss_network_dim"), "4");
  for (const char* name : {"lora_unet_transformer_blocks_0_attn_to_out_0.lora_down.weight",
                           "lora_unet_transformer_blocks_5_img_mlp_net_0_proj.lora_up.weight",
                           "lora_unet_transformer_blocks_3_txt_mod_1.alpha"}) {
    EXPECT_EQ((*file)->tensors().count(name), 1u) << name;
  }
  const auto layout = LayoutOfFile(Path("a.safetensors"), model_);
  ASSERT_TRUE(layout.ok()) << Message(layout.status());
  ASSERT_EQ(layout->modules.size(), adapter.layout().modules.size());
  for (size_t i = 0; i < layout->modules.size(); ++i) {
    EXPECT_EQ(layout->modules[i].key, adapter.layout().modules[i].key);
    EXPECT_EQ(layout->modules[i].rank, adapter.layout().modules[i].rank);
    EXPECT_EQ(layout->modules[i].alpha, adapter.layout().modules[i].alpha);
  }
  Adapter loaded = Adapter::Create(model_, *layout, at::kCPU, false);
  ASSERT_TRUE(loaded.Load(Path("a.safetensors")).ok());
  EXPECT_TRUE(at::equal(loaded.parameters(), adapter.parameters()));
}

TEST_F(AdapterTest, SavesInNarrowTypesAndReadsThemBack) {
  const Adapter adapter = MakeRandomAdapter(model_, false);
  for (Dtype precision : {Dtype::kBFloat16, Dtype::kFloat16}) {
    ASSERT_TRUE(adapter.Save(Path("n.safetensors"), precision, {}).ok());
    Adapter loaded = Adapter::Create(model_, adapter.layout(), at::kCPU, false);
    const absl::Status status = loaded.Load(Path("n.safetensors"));
    ASSERT_TRUE(status.ok()) << Message(status);
    const at::ScalarType type = precision == Dtype::kFloat16 ? at::kHalf : at::kBFloat16;
    EXPECT_TRUE(at::equal(loaded.parameters(), adapter.parameters().to(type).to(at::kFloat)));
  }
}

// F110: an empty or broken adapter must never be saved with success.
TEST_F(AdapterTest, RefusesToSaveWhatIsNotFiniteOrEmpty) {
  Adapter adapter = MakeRandomAdapter(model_, false);
  adapter.block(2).linears[3].up[1][0] = std::numeric_limits<float>::quiet_NaN();
  const absl::Status nan = adapter.Save(Path("x.safetensors"), Dtype::kFloat32, {});
  EXPECT_EQ(nan.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(nan),
              HasSubstr("lora_unet_transformer_blocks_2_attn_to_out_0.lora_up.weight"));
  // Finite in fp32, infinite in fp16.
  adapter.block(2).linears[3].up[1][0] = 1e6f;
  EXPECT_EQ(adapter.Save(Path("x.safetensors"), Dtype::kFloat16, {}).code(),
            absl::StatusCode::kFailedPrecondition);
  const Adapter empty = Adapter::Create(model_, {}, at::kCPU, false);
  EXPECT_EQ(empty.Save(Path("x.safetensors"), Dtype::kFloat32, {}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(Path("x.safetensors")));
}

constexpr char kModule[] = "lora_unet_transformer_blocks_1_attn_to_q";

TEST_F(AdapterTest, AlphaMissingOrZeroMeansRank) {
  const at::Tensor down = RandomTensor({3, 64}, 1), up = RandomTensor({64, 3}, 2);
  const std::string key = kModule;
  for (const auto& [alpha, expected] : {std::pair{-1.0, 3.0}, {0.0, 3.0}, {1.5, 1.5}}) {
    std::map<std::string, at::Tensor> tensors = {{key + ".lora_down.weight", down},
                                                 {key + ".lora_up.weight", up}};
    if (alpha >= 0) tensors[key + ".alpha"] = at::full({}, alpha, at::kFloat);
    Write(Path("a.safetensors"), tensors);
    const auto layout = LayoutOfFile(Path("a.safetensors"), model_);
    ASSERT_TRUE(layout.ok()) << Message(layout.status());
    ASSERT_EQ(layout->modules.size(), 1u);
    EXPECT_EQ(layout->modules[0].alpha, expected);
    EXPECT_EQ(layout->modules[0].rank, 3);
    EXPECT_EQ(layout->modules[0].target.path, "transformer_blocks.1.attn.to_q");
  }
}

TEST_F(AdapterTest, RefusesFilesThatDoNotFitTheModel) {
  const at::Tensor down = RandomTensor({3, 64}, 1), up = RandomTensor({64, 3}, 2);
  const std::string key = kModule;
  const std::vector<std::pair<std::map<std::string, at::Tensor>, std::string>> cases = {
      {{{key + ".lora_down.weight", down}}, "lora_up.weight' is missing"},
      {{{key + ".lora_down.weight", down}, {key + ".lora_up.weight", RandomTensor({64, 2}, 2)}},
       "[64, 2]"},
      {{{key + ".lora_down.weight", RandomTensor({3, 63}, 1)}, {key + ".lora_up.weight", up}},
       "[3, 63]"},
      {{{"lora_unet_transformer_blocks_9_attn_to_q.lora_down.weight", down}}, "blocks_9_attn_to_q"},
      {{{key + ".lora_down.weight", down},
        {key + ".lora_up.weight", up},
        {key + ".dora_scale", up}},
       "dora_scale"},
      {{{key + ".lora_down.weight", down}, {key + ".lora_up.weight", up}, {key + ".alpha", up}},
       "alpha"},
  };
  for (const auto& [tensors, words] : cases) {
    Write(Path("bad.safetensors"), tensors);
    const auto layout = LayoutOfFile(Path("bad.safetensors"), model_);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << words;
    EXPECT_THAT(Message(layout.status()), HasSubstr(words));
  }
  EXPECT_EQ(LayoutOfFile(Path("absent.safetensors"), model_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(AdapterTest, LoadNamesWhatIsMissingAndAnotherAlpha) {
  Adapter adapter = MakeRandomAdapter(model_, false);
  const at::Tensor down = RandomTensor({3, 64}, 1), up = RandomTensor({64, 3}, 2);
  Write(Path("part.safetensors"), {{std::string(kModule) + ".lora_down.weight", down}});
  const absl::Status partial = adapter.Load(Path("part.safetensors"));
  EXPECT_EQ(partial.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(partial), HasSubstr("is missing"));

  ASSERT_TRUE(adapter.Save(Path("a.safetensors"), Dtype::kFloat32, {}).ok());
  AdapterLayout louder = adapter.layout();
  for (AdapterModule& module : louder.modules) module.alpha *= 2;
  const absl::Status alpha =
      Adapter::Create(model_, louder, at::kCPU, false).Load(Path("a.safetensors"));
  EXPECT_EQ(alpha.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(alpha), HasSubstr("alpha"));
}

}  // namespace
}  // namespace blockswap::worker
