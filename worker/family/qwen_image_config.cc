// SPDX-License-Identifier: Apache-2.0
#include "worker/family/qwen_image_config.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "offload/base/status_macros.h"
#include "worker/io/json_text.h"

namespace blockswap::worker {
namespace {

constexpr char kClassName[] = "QwenImageTransformer2DModel";
constexpr char kBlockPrefix[] = "transformer_blocks.";
constexpr int64_t kMaxSide =
    int64_t{1} << 20;  // of any width or count; keeps products of three within 63 bits
constexpr int64_t kMaxLayers = 10'000;

// Reads the keys of config.json one by one; the first that is wrong stays as the status.
class ConfigReader {
 public:
  explicit ConfigReader(const nlohmann::json& json) : json_(json) {}

  void Count(const char* key, int64_t most, int64_t* value) {
    const nlohmann::json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_number_integer() || found->get<int64_t>() < 1 || found->get<int64_t>() > most) {
      Fail(absl::StrCat(key, " must be a whole number from 1 to ", most, ", is ", found->dump()));
      return;
    }
    *value = found->get<int64_t>();
  }
  void Flag(const char* key, bool* value) {
    const nlohmann::json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) {
      Fail(absl::StrCat(key, " must be true or false, is ", found->dump()));
      return;
    }
    *value = found->get<bool>();
  }
  void Unavailable(const char* key) {
    bool value = false;
    Flag(key, &value);
    if (value) Fail(absl::StrCat(key, " is true, which is not available for qwen_image yet"));
  }
  void Axes(const char* key, std::vector<int64_t>* value) {
    const nlohmann::json* found = Find(key);
    if (found == nullptr) return;
    value->clear();
    for (const nlohmann::json& axis : *found) {
      if (!found->is_array() || !axis.is_number_integer() || axis.get<int64_t>() < 2 ||
          axis.get<int64_t>() > kMaxSide || axis.get<int64_t>() % 2 != 0) {
        value->clear();
        break;
      }
      value->push_back(axis.get<int64_t>());
    }
    if (value->size() != 3) {
      Fail(absl::StrCat(key, " must be three even positive numbers, is ", found->dump()));
    }
  }
  void ClassName() {
    const nlohmann::json* found = Find("_class_name");
    if (found != nullptr && *found != kClassName) {
      Fail(absl::StrCat("_class_name is ", found->dump(), ", expected \"", kClassName, "\""));
    }
  }
  const absl::Status& status() const { return status_; }

 private:
  // A key that is absent or null keeps the class's default.
  const nlohmann::json* Find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  void Fail(const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat("config.json: ", what));
  }

  const nlohmann::json& json_;
  absl::Status status_;
};

absl::StatusOr<QwenImageConfig> FromJson(const std::string& text) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, "config.json"));
  if (!json.is_object()) return absl::InvalidArgumentError("config.json must be an object");
  QwenImageConfig config;
  ConfigReader reader(json);
  reader.ClassName();
  reader.Count("patch_size", 64, &config.patch_size);
  reader.Count("in_channels", kMaxSide, &config.in_channels);
  config.out_channels = 16;
  reader.Count("out_channels", kMaxSide, &config.out_channels);
  reader.Count("num_layers", kMaxLayers, &config.num_layers);
  reader.Count("attention_head_dim", kMaxSide, &config.attention_head_dim);
  reader.Count("num_attention_heads", kMaxSide, &config.num_attention_heads);
  reader.Count("joint_attention_dim", kMaxSide, &config.joint_attention_dim);
  reader.Axes("axes_dims_rope", &config.axes_dims_rope);
  reader.Flag("zero_cond_t", &config.zero_cond_t);
  for (const char* option : {"guidance_embeds", "use_additional_t_cond", "use_layer3d_rope"}) {
    reader.Unavailable(option);
  }
  BLOCKSWAP_RETURN_IF_ERROR(reader.status());
  return config;
}

// One side of a tensor, or nothing where it is absent or has too few sides.
std::optional<int64_t> Side(const CheckpointSource& source, const char* name, size_t axis) {
  const auto found = source.tensors().find(name);
  if (found == source.tensors().end() || found->second.entry.shape.size() <= axis)
    return std::nullopt;
  const int64_t side = found->second.entry.shape[axis];
  if (side < 1 || side > kMaxSide) return std::nullopt;
  return side;
}

int64_t NumLayers(const CheckpointSource& source) {
  int64_t layers = 0;
  for (const auto& [name, tensor] : source.tensors()) {
    if (!absl::StartsWith(name, kBlockPrefix)) continue;
    const std::string rest = name.substr(sizeof(kBlockPrefix) - 1);
    int64_t index = 0;
    if (absl::SimpleAtoi(rest.substr(0, rest.find('.')), &index) && index >= 0 &&
        index < kMaxLayers) {
      layers = std::max(layers, index + 1);
    }
  }
  return layers;
}

absl::StatusOr<QwenImageConfig> FromShapes(const CheckpointSource& source) {
  QwenImageConfig config;
  const auto head = Side(source, "transformer_blocks.0.attn.norm_q.weight", 0);
  const auto width = Side(source, "img_in.weight", 0);
  const auto in = Side(source, "img_in.weight", 1);
  const auto text = Side(source, "txt_in.weight", 1);
  const auto out = Side(source, "proj_out.weight", 0);
  if (!head || !width || !in || !text || !out || *width % *head != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        source.path(),
        ": the sizes of the model cannot be told from its tensors; name its config.json"));
  }
  config.attention_head_dim = *head;
  config.num_attention_heads = *width / *head;
  config.in_channels = *in;
  config.joint_attention_dim = *text;
  config.num_layers = NumLayers(source);
  const int64_t cells = config.patch_size * config.patch_size;
  config.out_channels = *out / cells;
  const int64_t rope =
      std::accumulate(config.axes_dims_rope.begin(), config.axes_dims_rope.end(), int64_t{0});
  if (rope != *head) {
    return absl::InvalidArgumentError(absl::StrCat(
        source.path(), ": heads are ", *head, " wide, not ", rope,
        ", and tensors do not tell how RoPE splits them; name the model's config.json"));
  }
  return config;
}

absl::Status CheckConsistency(const QwenImageConfig& config) {
  const int64_t rope =
      std::accumulate(config.axes_dims_rope.begin(), config.axes_dims_rope.end(), int64_t{0});
  if (rope != config.attention_head_dim) {
    return absl::InvalidArgumentError(absl::StrCat("config.json: axes_dims_rope sum to ", rope,
                                                   ", attention_head_dim is ",
                                                   config.attention_head_dim));
  }
  const int64_t cells = config.patch_size * config.patch_size;
  if (config.in_channels % cells != 0) {
    return absl::InvalidArgumentError(absl::StrCat("config.json: in_channels ", config.in_channels,
                                                   " is no multiple of patch_size squared, ",
                                                   cells));
  }
  if (config.dim() > kMaxSide) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.json: the width ", config.dim(), " is more than ", kMaxSide));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QwenImageConfig> ReadQwenImageConfig(const CheckpointSource& source) {
  absl::StatusOr<QwenImageConfig> config =
      source.config_json().empty() ? FromShapes(source) : FromJson(source.config_json());
  if (!config.ok()) return config;
  BLOCKSWAP_RETURN_IF_ERROR(CheckConsistency(*config));
  if (source.tensors().count(kZeroCondTimeMarker) > 0) config->zero_cond_t = true;
  return config;
}

}  // namespace blockswap::worker
