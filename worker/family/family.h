// SPDX-License-Identifier: Apache-2.0
// What blockswap knows of a model family without torch: names, shapes, block lists, adapter
// targets, sizes and costs.
//
// A family is one descriptor here and one forward in worker/model/. AllFamilies() is the literal
// table of them.
#ifndef BLOCKSWAP_WORKER_FAMILY_FAMILY_H_
#define BLOCKSWAP_WORKER_FAMILY_FAMILY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "offload/plan/block_profile.h"
#include "worker/config/train_config.h"
#include "worker/io/checkpoint_source.h"
#include "worker/io/fp8_scaled.h"

namespace blockswap::worker {

struct TensorSpec {
  std::string name;  // full key in the checkpoint ("transformer_blocks.3.attn.to_q.weight")
  std::vector<int64_t> shape;
  // Norm weights and 1-D tensors keep this type; everything else takes the job's dtype. (Same type
  // here: the job's.)
  // Used on the host, where it lies: takes no bytes of the packed block (ModelDescription::
  // host_modulation).
  bool on_host = false;
  // Set where the weight is held as codes and scales, in the device's memory too; its dtype is then
  // that of what the product is computed in. Set by DescribeModel.
  std::optional<Fp8Format> fp8 = std::nullopt;
};

// A linear an adapter may be put on.
struct AdapterTarget {
  std::string path;  // dotted, "transformer_blocks.3.attn.to_q"
  int block = 0;
  int slot =
      0;  // which linear of its block, in the family's order: index into DescribedBlock::linears
  int64_t in_features = 0, out_features = 0;
};

// One block: its tensors in a fixed order (index = tensor index of a lease) and its linears in a
// fixed order.
struct DescribedBlock {
  std::string name;  // "transformer_blocks.3"
  std::vector<TensorSpec> tensors;
  std::vector<AdapterTarget> linears;
  // The slots as a forward asks for their weights, and as a backward does: the recompute, then back.
  std::vector<int> forward_order, backward_order;
};

// Hyper-parameters of a Qwen-Image transformer (facts/architectures.md 4.1), from config.json over
// the class's defaults.
struct QwenImageConfig {
  int64_t patch_size = 2, in_channels = 64, out_channels = 16, num_layers = 60;
  int64_t attention_head_dim = 128, num_attention_heads = 24, joint_attention_dim = 3584;
  std::vector<int64_t> axes_dims_rope = {16, 56, 56};
  bool zero_cond_t = false;
  int64_t dim() const { return attention_head_dim * num_attention_heads; }
};

// A model as found in a checkpoint: exact shapes, checked against the file's header.
struct ModelDescription {
  std::string family;  // "qwen_image"
  Dtype dtype = Dtype::kBFloat16;
  Quantization quantization = Quantization::kNone;  // fp8_scaled: some linears hold codes
  QwenImageConfig qwen_image;  // valid when family == "qwen_image"; each family adds its own
  std::vector<TensorSpec> edge_tensors;  // outside the blocks, always on the device
  std::vector<DescribedBlock> blocks;
  std::vector<offload::BlockList> lists;
  int max_blocks_to_swap = 0;
  // The linears that depend on the time embedding alone are evaluated on the host, for all blocks,
  // and their weights never reach the device. A property of the job: host and device round
  // differently. Set by Family::SetHostModulation.
  bool host_modulation = false;
  int64_t latent_channels = 0;  // of the dataset's latents
  int64_t text_features = 0;
  int64_t vae_scale = 8;           // media pixels per latent cell and side
  int64_t patch = 2;               // latent cells per token and side
  std::string text_cache_content;  // what text caches call the features: "varlen_vl_embed"
};

// Token counts of one bucket of the dataset.
struct TokenCounts {
  int64_t image = 0, text = 0, batch = 1;
};

struct AdapterModule {
  AdapterTarget target;
  std::string key;  // "lora_unet_transformer_blocks_3_attn_to_q"
  int rank = 0;
  double alpha = 0;
};
// The modules that train, in block order then linear order.
struct AdapterLayout {
  std::vector<AdapterModule> modules;
  int64_t num_parameters() const;
};

// Which linears model.quantization: fp8_scaled quantises, by substrings of the weight's name as
// musubi has them: any of `targets`, none of `excluded`.
struct Fp8Layers {
  std::vector<std::string> targets, excluded;
};

// Stateless; one literal instance per family.
class Family {
 public:
  virtual ~Family() = default;
  virtual absl::string_view name() const = 0;               // "qwen_image"
  virtual absl::string_view musubi_short_name() const = 0;  // "qi"
  // True when the checkpoint's names are of this family.
  virtual bool Recognises(const CheckpointSource& source) const = 0;
  // Reads config.json (or, where absent, what the shapes tell) and checks every tensor: names and
  // shapes. InvalidArgument: counts of missing, unknown and misshapen tensors with up to two
  // examples each.
  virtual absl::StatusOr<ModelDescription> Describe(const CheckpointSource& source,
                                                    Dtype dtype) const = 0;
  // musubi's default exclude pattern semantics (facts/musubi.md 5.2).
  virtual std::vector<std::string> DefaultExcludePatterns() const = 0;
  // Moves the block linears that depend on the time embedding alone to the host, or back. False
  // when the family has none; the description is then as before.
  virtual bool SetHostModulation(bool /*on*/, ModelDescription* /*model*/) const { return false; }
  virtual Fp8Layers fp8_layers() const = 0;
  // Sizes for the planner: packed block layouts, edge bytes, activation estimates at the largest
  // bucket, relative costs at the mean one.
  virtual offload::ModelProfile Profile(const ModelDescription& model, const AdapterLayout& adapter,
                                        absl::Span<const TokenCounts> buckets) const = 0;
};

absl::Span<const Family* const> AllFamilies();
// InvalidArgument naming the known families (with the nearest one).
absl::StatusOr<const Family*> FindFamily(absl::string_view name);
// By key names and config (_class_name); InvalidArgument with two example keys when none fits.
absl::StatusOr<const Family*> DetectFamily(const CheckpointSource& source);

// Family::Describe, and then which linears of the blocks hold fp8 codes: those stored so, whatever
// is asked for, and with `quantization` fp8_scaled those that the family's rule names. The same for
// every plan.
absl::StatusOr<ModelDescription> DescribeModel(const Family& family, const CheckpointSource& source,
                                               Dtype dtype, Quantization quantization);
// How many linears are quantised and how, for people; empty when none is.
std::string QuantizationText(const ModelDescription& model);

// Bytes of one tensor in a packed block. Codes and scales of a quantised weight are one tensor, the
// scales at Fp8ScaleOffset: they cannot be parted.
int64_t PackedTensorBytes(const TensorSpec& tensor, Dtype dtype);
int64_t Fp8ScaleOffset(const Fp8Format& format);
// Reads one tensor as it lies in a packed block.
absl::Status ReadPackedTensor(const CheckpointSource& source, const TensorSpec& tensor, Dtype dtype,
                              absl::Span<std::byte> destination);

// Packed layout of a block in the given type: offsets at multiples of kTensorAlignment, in tensor
// order.
offload::BlockProfile PackBlock(const DescribedBlock& block, Dtype dtype);
// Reads a whole block packed (padding zeroed).
absl::Status ReadPackedBlock(const CheckpointSource& source, const DescribedBlock& block,
                             const offload::BlockProfile& profile, Dtype dtype,
                             absl::Span<std::byte> destination);

// Chooses the modules an adapter trains. InvalidArgument: a pattern that is no valid regular
// expression (names it), or no module left (lists five candidate names).
absl::StatusOr<AdapterLayout> SelectAdapterModules(const ModelDescription& model,
                                                   const Family& family,
                                                   const NetworkConfig& network);

}  // namespace blockswap::worker

#endif  // BLOCKSWAP_WORKER_FAMILY_FAMILY_H_
