// SPDX-License-Identifier: Apache-2.0
#include "worker/family/qwen_image_family.h"

#include <algorithm>
#include <utility>

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

void RaiseTo(int64_t value, int64_t* most) { *most = std::max(*most, value); }

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
  // One quantised weight at a time is widened, inside its op.
  for (const DescribedBlock& block : model.blocks) {
    for (const AdapterTarget& linear : block.linears) {
      const TensorSpec& weight = block.tensors[2 * static_cast<size_t>(linear.slot)];
      if (!weight.fp8.has_value() || weight.on_host) continue;
      const bool modulates = DescribeQwenImageSlot(linear.slot).part == QwenImagePart::kModulation;
      RaiseTo(linear.in_features * linear.out_features * shape.dtype_bytes,
              modulates ? &shape.widened_modulation_bytes : &shape.widened_weight_bytes);
    }
  }
  return shape;
}

// Where linears have adapters in the block that has most of each. Without any the base trains: the
// gradient of every weight needs the input that an adapter there would.
BlockAdapters AdaptersOf(const AdapterLayout& adapter, size_t num_blocks) {
  std::vector<BlockAdapters> blocks(std::max<size_t>(num_blocks, 1));
  BlockAdapters most;
  if (adapter.modules.empty()) {
    for (const auto stream : {&BlockAdapters::image, &BlockAdapters::text}) {
      StreamAdapters& trained = most.*stream;
      trained.projections = trained.mlp_in = trained.modulation = true;
    }
  }
  for (const AdapterModule& module : adapter.modules) {
    const AdapterTarget& target = module.target;
    const QwenImageSlot slot = DescribeQwenImageSlot(target.slot);
    BlockAdapters& block = blocks[static_cast<size_t>(target.block)];
    StreamAdapters& stream = slot.is_text ? block.text : block.image;
    switch (slot.part) {
      case QwenImagePart::kProjection:
        stream.projections = true;
        stream.projection_ranks += module.rank;
        break;
      case QwenImagePart::kMlpIn:
        stream.mlp_in = true;
        stream.mlp_in_rank += module.rank;
        break;
      case QwenImagePart::kMlpOut:
        stream.mlp_out_rank += module.rank;
        break;
      case QwenImagePart::kOutput:
        stream.out_rank += module.rank;
        break;
      case QwenImagePart::kModulation:
        stream.modulation = true;
        break;
    }
  }
  for (const BlockAdapters& block : blocks) {
    for (const auto stream : {&BlockAdapters::image, &BlockAdapters::text}) {
      StreamAdapters& to = most.*stream;
      const StreamAdapters& from = block.*stream;
      to.projections |= from.projections, to.mlp_in |= from.mlp_in;
      to.modulation |= from.modulation;
      RaiseTo(from.projection_ranks, &to.projection_ranks);
      RaiseTo(from.out_rank, &to.out_rank);
      RaiseTo(from.mlp_in_rank, &to.mlp_in_rank);
      RaiseTo(from.mlp_out_rank, &to.mlp_out_rank);
    }
  }
  return most;
}

// Each estimate at the bucket where it is largest: no one bucket need be the largest for all.
void SetActivations(const DoubleStreamShape& shape, const BlockAdapters& adapters,
                    absl::Span<const TokenCounts> buckets, offload::ModelProfile* profile) {
  const auto num_blocks = static_cast<int64_t>(profile->blocks.size());
  for (const TokenCounts& tokens : buckets) {
    RaiseTo(num_blocks * BoundaryBytes(shape, tokens), &profile->boundary_bytes);
    RaiseTo(BlockActivationBytes(shape, tokens, adapters, BlockPlace::kInner),
            &profile->block_activation_bytes);
    RaiseTo(BlockActivationBytes(shape, tokens, adapters, BlockPlace::kLast),
            &profile->last_block_activation_bytes);
    RaiseTo(EdgeActivationBytes(shape, tokens), &profile->edge_activation_bytes);
    RaiseTo(ConditioningBytes(shape, tokens, num_blocks), &profile->conditioning_bytes);
    for (offload::BlockProfile& block : profile->blocks) {
      const bool is_last = &block == &profile->blocks.back();
      RaiseTo(KeptActivationBytes(shape, tokens, adapters,
                                  is_last ? BlockPlace::kLast : BlockPlace::kInner),
              &block.kept_activation_bytes);
    }
  }
}

void SetFlops(const DoubleStreamShape& shape, const AdapterLayout& adapter,
              absl::Span<const TokenCounts> buckets, offload::ModelProfile* profile) {
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
  const double recompute = flops.forward() + low_rank;
  profile->recompute_over_forward = 1;
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

bool QwenImageFamily::SetHostModulation(bool on, ModelDescription* model) const {
  model->host_modulation = on;
  for (DescribedBlock& block : model->blocks) {
    for (const auto slot : kModulationSlots) {
      const size_t weight = 2 * static_cast<size_t>(slot);
      block.tensors[weight].on_host = block.tensors[weight + 1].on_host = on;
    }
  }
  return true;
}

Fp8Layers QwenImageFamily::fp8_layers() const {
  // musubi's own: all linears of the blocks, the modulation too.
  return {{"transformer_blocks"}, {"norm", "time_text_embed"}};
}

offload::ModelProfile QwenImageFamily::Profile(const ModelDescription& model,
                                               const AdapterLayout& adapter,
                                               absl::Span<const TokenCounts> buckets) const {
  offload::ModelProfile profile;
  for (const DescribedBlock& block : model.blocks) {
    profile.blocks.push_back(PackBlock(block, model.dtype));
  }
  for (const DescribedBlock& block : model.blocks) {
    for (TensorSpec tensor : block.tensors) {
      if (!std::exchange(tensor.on_host, false)) continue;
      profile.host_evaluated_bytes += PackedTensorBytes(tensor, model.dtype);
    }
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
  DoubleStreamShape shape = ShapeOf(model);
  shape.base_trains = adapter.modules.empty();
  SetActivations(shape, AdaptersOf(adapter, model.blocks.size()), buckets, &profile);
  SetFlops(shape, adapter, buckets, &profile);
  return profile;
}

}  // namespace blockswap::worker
