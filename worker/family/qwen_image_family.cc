// SPDX-License-Identifier: Apache-2.0
#include "worker/family/qwen_image_family.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/family/activation_estimate.h"
#include "worker/family/qwen_image_config.h"
#include "worker/family/qwen_image_layout.h"
#include "worker/family/tensor_check.h"
#include "worker/io/json_text.h"

namespace blockswap::worker {
namespace {

constexpr char kMarkerTensor[] = "transformer_blocks.0.img_mod.1.weight";
constexpr char kClassName[] = "QwenImageTransformer2DModel";

DoubleStreamShape ShapeOf(const ModelDescription& model) {
  const QwenImageConfig& config = model.qwen_image;
  DoubleStreamShape shape;
  shape.dim = config.dim();
  shape.heads = config.num_attention_heads;
  shape.head_dim = config.attention_head_dim;
  shape.in_channels = config.in_channels;
  shape.out_channels = config.patch_size * config.patch_size * config.out_channels;
  shape.text_features = config.joint_attention_dim;
  shape.two_times = config.zero_cond_t;
  shape.dtype_bytes = DtypeBytes(model.dtype);
  return shape;
}

// What of an adapter counts for activations: its largest module, and the block of most ranks.
struct AdapterExtremes {
  int64_t module_parameters = 0, block_rank_sum = 0;
};

AdapterExtremes ExtremesOf(const AdapterLayout& adapter, size_t num_blocks) {
  AdapterExtremes extremes;
  std::vector<int64_t> rank_sums(std::max<size_t>(num_blocks, 1));
  for (const AdapterModule& module : adapter.modules) {
    const AdapterTarget& target = module.target;
    extremes.module_parameters = std::max(extremes.module_parameters,
                                          module.rank * (target.in_features + target.out_features));
    rank_sums[static_cast<size_t>(target.block)] += module.rank;
  }
  extremes.block_rank_sum = *std::max_element(rank_sums.begin(), rank_sums.end());
  return extremes;
}

// Each estimate at the bucket where it is largest: no one bucket need be the largest for all.
void SetActivations(const DoubleStreamShape& shape, const AdapterExtremes& adapter,
                    absl::Span<const TokenCounts> buckets, bool gradient_checkpointing,
                    offload::ModelProfile* profile) {
  const auto num_blocks = static_cast<int64_t>(profile->blocks.size());
  for (const TokenCounts& tokens : buckets) {
    const int64_t kept = gradient_checkpointing
                             ? BoundaryBytes(shape, tokens)
                             : KeptActivationBytes(shape, tokens, adapter.block_rank_sum);
    profile->boundary_bytes = std::max(profile->boundary_bytes, num_blocks * kept);
    profile->block_activation_bytes = std::max(
        profile->block_activation_bytes,
        BlockActivationBytes(shape, tokens, adapter.module_parameters, adapter.block_rank_sum));
    profile->edge_activation_bytes =
        std::max(profile->edge_activation_bytes, EdgeActivationBytes(shape, tokens, num_blocks));
  }
}

void SetFlops(const DoubleStreamShape& shape, const AdapterLayout& adapter,
              absl::Span<const TokenCounts> buckets, bool gradient_checkpointing,
              offload::ModelProfile* profile) {
  if (buckets.empty()) return;
  double image = 0, text = 0, batch = 0;
  for (const TokenCounts& tokens : buckets) {
    image += static_cast<double>(tokens.image);
    text += static_cast<double>(tokens.text);
    batch += static_cast<double>(tokens.batch);
  }
  const auto count = static_cast<double>(buckets.size());
  const BlockFlops flops = ForwardFlops(shape, image / count, text / count, batch / count);
  for (offload::BlockProfile& block : profile->blocks) block.forward_flops = flops.forward();
  const auto blocks = static_cast<double>(profile->blocks.size());
  profile->forward_flops = blocks * flops.forward();
  // Linears: the gradient of the input alone (their weights are frozen). Attention: two gradients
  // for each of its two products, and the scores once more. An adapter: gradients of input and
  // weights.
  const double low_rank = 2 * static_cast<double>(adapter.num_parameters()) / blocks *
                          (image + text) / count * batch / count / 2;
  const double backward = flops.linears + 2.5 * flops.attention + 2 * low_rank;
  const double recompute = gradient_checkpointing ? flops.forward() + low_rank : 0;
  profile->backward_over_forward = (recompute + backward) / (flops.forward() + low_rank);
}

}  // namespace

bool QwenImageFamily::Recognises(const CheckpointSource& source) const {
  if (source.tensors().count(kMarkerTensor) > 0) return true;
  const auto json = ParseJson(source.config_json(), "config.json");
  return json.ok() && json->is_object() &&
         json->value("_class_name", nlohmann::json()) == kClassName;
}

absl::StatusOr<ModelDescription> QwenImageFamily::Describe(const CheckpointSource& source,
                                                           Dtype dtype) const {
  BLOCKSWAP_ASSIGN_OR_RETURN(const QwenImageConfig config, ReadQwenImageConfig(source));
  ModelDescription model;
  model.family = "qwen_image";
  model.dtype = dtype;
  model.qwen_image = config;
  model.edge_tensors = DescribeQwenImageEdges(config);
  const auto layers = static_cast<int>(config.num_layers);
  for (int i = 0; i < layers; ++i) model.blocks.push_back(DescribeQwenImageBlock(config, i));
  model.max_blocks_to_swap = layers - 1;
  model.lists = {{"transformer_blocks", /*first=*/0, layers, model.max_blocks_to_swap}};
  model.patch = config.patch_size;
  model.latent_channels = config.in_channels / (config.patch_size * config.patch_size);
  model.text_features = config.joint_attention_dim;
  model.text_cache_content = "varlen_vl_embed";
  BLOCKSWAP_RETURN_IF_ERROR(
      CheckTensors(source, model, {kZeroCondTimeMarker},
                   absl::StrCat("qwen_image with ", layers, " blocks of width ", config.dim())));
  return model;
}

std::vector<std::string> QwenImageFamily::DefaultExcludePatterns() const {
  // musubi's own. Meant for img_mod.1 and txt_mod.1, it fits neither, so the modulation trains
  // there and here alike.
  return {".*(_mod_).*"};
}

offload::ModelProfile QwenImageFamily::Profile(const ModelDescription& model,
                                               const AdapterLayout& adapter,
                                               absl::Span<const TokenCounts> buckets,
                                               bool gradient_checkpointing) const {
  offload::ModelProfile profile;
  for (const DescribedBlock& block : model.blocks) {
    profile.blocks.push_back(PackBlock(block, model.dtype));
  }
  profile.lists = model.lists;
  profile.max_blocks_to_swap = model.max_blocks_to_swap;
  for (const TensorSpec& tensor : model.edge_tensors) {
    int64_t bytes = DtypeBytes(model.dtype);
    for (const int64_t side : tensor.shape) bytes *= side;
    profile.edge_bytes += bytes;
  }
  constexpr int64_t kFloatBytes = 4;  // adapters train in fp32, whatever the model's type
  profile.adapter_bytes = 2 * kFloatBytes * adapter.num_parameters();
  profile.optimizer_bytes = 2 * kFloatBytes * adapter.num_parameters();
  const DoubleStreamShape shape = ShapeOf(model);
  SetActivations(shape, ExtremesOf(adapter, model.blocks.size()), buckets, gradient_checkpointing,
                 &profile);
  SetFlops(shape, adapter, buckets, gradient_checkpointing, &profile);
  return profile;
}

}  // namespace blockswap::worker
