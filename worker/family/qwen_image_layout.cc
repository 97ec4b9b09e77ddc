// SPDX-License-Identifier: Apache-2.0
#include "worker/family/qwen_image_layout.h"

#include "absl/strings/str_cat.h"

namespace blockswap::worker {
namespace {

constexpr int64_t kTimeFeatures = 256;  // width of the sinusoid
constexpr int64_t kMlpRatio = 4;
constexpr int64_t kModulations = 6;  // shift, scale and gate, for attention and for the MLP

enum Slot {
  kQ,
  kK,
  kV,
  kOut,
  kTextQ,
  kTextK,
  kTextV,
  kTextOut,
  kIn2,
  kOut2,
  kTextIn2,
  kTextOut2,
  kMod,
  kTextMod
};
static_assert(kModulationSlots == std::array<int, 2>{kMod, kTextMod});

// Slots as worker/model/double_block.cc asks for them. The recompute finds the modulation where the
// forward left it. Nothing reads the text stream after the last block.
void SetOrders(bool text_continues, DescribedBlock* block) {
  std::vector<int> blocks_own = {kTextQ, kTextK, kTextV, kQ, kK, kV, kOut, kIn2, kOut2};
  if (text_continues) blocks_own.insert(blocks_own.end(), {kTextOut, kTextIn2, kTextOut2});
  block->forward_order.assign(kModulationSlots.begin(), kModulationSlots.end());
  block->forward_order.insert(block->forward_order.end(), blocks_own.begin(), blocks_own.end());
  block->backward_order = blocks_own;
  block->backward_order.insert(block->backward_order.end(), blocks_own.rbegin(), blocks_own.rend());
}

void AddLinear(const std::string& path, int64_t out, int64_t in, std::vector<TensorSpec>* tensors) {
  tensors->push_back({absl::StrCat(path, ".weight"), {out, in}});
  tensors->push_back({absl::StrCat(path, ".bias"), {out}});
}

}  // namespace

QwenImageSlot DescribeQwenImageSlot(int slot) {
  switch (slot) {
    case kQ:
    case kK:
    case kV:
      return {false, QwenImagePart::kProjection};
    case kTextQ:
    case kTextK:
    case kTextV:
      return {true, QwenImagePart::kProjection};
    case kTextOut:
      return {true, QwenImagePart::kOutput};
    case kTextOut2:
      return {true, QwenImagePart::kMlpOut};
    case kOut2:
      return {false, QwenImagePart::kMlpOut};
    case kIn2:
      return {false, QwenImagePart::kMlpIn};
    case kTextIn2:
      return {true, QwenImagePart::kMlpIn};
    case kMod:
      return {false, QwenImagePart::kModulation};
    case kTextMod:
      return {true, QwenImagePart::kModulation};
    default:
      return {false, QwenImagePart::kOutput};
  }
}

DescribedBlock DescribeQwenImageBlock(const QwenImageConfig& config, int index) {
  DescribedBlock block;
  block.name = absl::StrCat("transformer_blocks.", index);
  const int64_t dim = config.dim(), hidden = kMlpRatio * dim;
  struct Linear {
    const char* path;
    int64_t out, in;
  };
  const Linear linears[] = {
      {"attn.to_q", dim, dim},
      {"attn.to_k", dim, dim},
      {"attn.to_v", dim, dim},
      {"attn.to_out.0", dim, dim},
      {"attn.add_q_proj", dim, dim},
      {"attn.add_k_proj", dim, dim},
      {"attn.add_v_proj", dim, dim},
      {"attn.to_add_out", dim, dim},
      {"img_mlp.net.0.proj", hidden, dim},
      {"img_mlp.net.2", dim, hidden},
      {"txt_mlp.net.0.proj", hidden, dim},
      {"txt_mlp.net.2", dim, hidden},
      {"img_mod.1", kModulations * dim, dim},
      {"txt_mod.1", kModulations * dim, dim},
  };
  for (const Linear& linear : linears) {
    const std::string path = absl::StrCat(block.name, ".", linear.path);
    AddLinear(path, linear.out, linear.in, &block.tensors);
    block.linears.push_back(
        {path, index, static_cast<int>(block.linears.size()), linear.in, linear.out});
  }
  for (const char* norm : {"norm_q", "norm_k", "norm_added_q", "norm_added_k"}) {
    block.tensors.push_back(
        {absl::StrCat(block.name, ".attn.", norm, ".weight"), {config.attention_head_dim}});
  }
  SetOrders(/*text_continues=*/index + 1 < config.num_layers, &block);
  return block;
}

std::vector<TensorSpec> DescribeQwenImageEdges(const QwenImageConfig& config) {
  const int64_t dim = config.dim();
  std::vector<TensorSpec> tensors;
  AddLinear("img_in", dim, config.in_channels, &tensors);
  AddLinear("txt_in", dim, config.joint_attention_dim, &tensors);
  tensors.push_back({"txt_norm.weight", {config.joint_attention_dim}});
  AddLinear("time_text_embed.timestep_embedder.linear_1", dim, kTimeFeatures, &tensors);
  AddLinear("time_text_embed.timestep_embedder.linear_2", dim, dim, &tensors);
  AddLinear("norm_out.linear", 2 * dim, dim, &tensors);
  AddLinear("proj_out", config.patch_size * config.patch_size * config.out_channels, dim, &tensors);
  return tensors;
}

}  // namespace blockswap::worker
