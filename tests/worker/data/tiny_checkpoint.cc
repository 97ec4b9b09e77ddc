// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/data/tiny_checkpoint.h"

#include <filesystem>
#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/family/qwen_image_layout.h"
#include "worker/io/atomic_file.h"
#include "worker/io/float_conversion.h"

namespace blockswap::worker {

QwenImageConfig TinyQwenImageConfig(int64_t num_layers) {
  QwenImageConfig config;
  config.in_channels = 8;
  config.out_channels = 2;
  config.num_layers = num_layers;
  config.attention_head_dim = 16;
  config.num_attention_heads = 2;
  config.joint_attention_dim = 24;
  config.axes_dims_rope = {4, 6, 6};
  return config;
}

std::string ConfigJson(const QwenImageConfig& config) {
  return absl::StrCat(
      "{\"_class_name\": \"QwenImageTransformer2DModel\", \"patch_size\": ", config.patch_size,
      ", \"in_channels\": ", config.in_channels, ", \"out_channels\": ", config.out_channels,
      ", \"num_layers\": ", config.num_layers,
      ", \"attention_head_dim\": ", config.attention_head_dim,
      ", \"num_attention_heads\": ", config.num_attention_heads,
      ", \"joint_attention_dim\": ", config.joint_attention_dim, ", \"axes_dims_rope\": [",
      absl::StrJoin(config.axes_dims_rope, ", "), "]",
      config.zero_cond_t ? ", \"zero_cond_t\": true}" : "}");
}

std::vector<TinyTensor> TinyQwenImageTensors(const QwenImageConfig& config) {
  std::vector<TinyTensor> tensors;
  for (const TensorSpec& tensor : DescribeQwenImageEdges(config)) {
    tensors.push_back({tensor.name, tensor.shape});
  }
  for (int i = 0; i < static_cast<int>(config.num_layers); ++i) {
    for (const TensorSpec& tensor : DescribeQwenImageBlock(config, i).tensors) {
      tensors.push_back({tensor.name, tensor.shape});
    }
  }
  return tensors;
}

absl::Status WriteTinyTensors(const std::string& path, const std::vector<TinyTensor>& tensors) {
  std::vector<std::vector<std::byte>> values;
  std::vector<TensorToWrite> list;
  for (const TinyTensor& tensor : tensors) {
    size_t count = 1;
    for (const int64_t side : tensor.shape) count *= static_cast<size_t>(side);
    std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>{}(tensor.name)));
    std::vector<float> floats(count);
    for (float& value : floats) value = static_cast<float>(random() % 2001) / 10000.0f - 0.1f;
    std::vector<std::byte>& bytes =
        values.emplace_back(count * static_cast<size_t>(StoredTypeBytes(tensor.type)));
    if (tensor.type == StoredType::kF8E4M3) {
      for (size_t i = 0; i < count; ++i) bytes[i] = std::byte{NarrowToFloat8E4M3(floats[i])};
      continue;
    }
    const auto source = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(floats.data()),
                                            floats.size() * sizeof(float));
    // Types without a conversion keep zeros: only their headers are of interest.
    ConvertFloats(StoredType::kF32, source, tensor.type, absl::MakeSpan(bytes)).IgnoreError();
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    list.push_back({tensors[i].name, tensors[i].type, tensors[i].shape, values[i]});
  }
  return WriteSafetensors(path, list, {{"format", "pt"}});
}

absl::Status WriteTinyCheckpoint(const std::string& directory, const QwenImageConfig& config) {
  std::filesystem::create_directories(directory);
  const absl::Status status =
      WriteTinyTensors(absl::StrCat(directory, "/model.safetensors"), TinyQwenImageTensors(config));
  if (!status.ok()) return status;
  return WriteFileAtomically(absl::StrCat(directory, "/config.json"), ConfigJson(config));
}

}  // namespace blockswap::worker
