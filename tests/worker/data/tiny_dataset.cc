// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/data/tiny_dataset.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/io/safetensors.h"

namespace blockswap::worker {
namespace {

namespace fs = std::filesystem;

// Tensors of zeros.
void WriteZeros(const std::string& path,
                const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors,
                const std::map<std::string, std::string>& metadata) {
  fs::create_directories(fs::path(path).parent_path());
  std::vector<std::vector<std::byte>> values;
  std::vector<TensorToWrite> list;
  for (const auto& [name, shape] : tensors) {
    size_t bytes = sizeof(float);
    for (const int64_t side : shape) bytes *= static_cast<size_t>(side);
    values.emplace_back(bytes);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    list.push_back({tensors[i].first, StoredType::kF32, tensors[i].second, values[i]});
  }
  if (!WriteSafetensors(path, list, metadata).ok()) abort();
}

}  // namespace

ModelDescription TinyModelDescription() {
  ModelDescription model;
  model.family = "qwen_image";
  model.latent_channels = 2;
  model.text_features = 24;
  model.text_cache_content = "varlen_vl_embed";
  return model;
}

void WriteLatentCache(const std::string& directory, const std::string& item,
                      const TinyLatent& latent) {
  std::map<std::string, std::string> metadata = {{"architecture", "qwen_image"},
                                                 {"width", absl::StrCat(latent.width)},
                                                 {"height", absl::StrCat(latent.height)},
                                                 {"format_version", "1.0.1"}};
  for (const auto& [key, value] : latent.metadata) metadata[key] = value;
  std::string key = latent.key;
  if (key.empty()) {
    key = absl::StrCat("latents_", latent.frames, "x", latent.tensor_height, "x",
                       latent.tensor_width, "_float32");
  }
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {
      {key, {latent.channels, latent.frames, latent.tensor_height, latent.tensor_width}}};
  for (size_t i = 0; i < latent.controls.size(); ++i) {
    const std::vector<int64_t>& shape = latent.controls[i];
    tensors.push_back({absl::StrCat("latents_control_", i, "_", shape[1], "x", shape[2], "x",
                                    shape[3], "_float32"),
                       shape});
  }
  WriteZeros(
      absl::StrCat(directory, "/", item, absl::StrFormat("_%04dx%04d", latent.width, latent.height),
                   "_qi.safetensors"),
      tensors, metadata);
}

void WriteTextCacheFile(const std::string& path, const TinyText& text) {
  std::map<std::string, std::string> metadata = {
      {"architecture", "qwen_image"}, {"caption1", text.caption}, {"format_version", "1.0.1"}};
  for (const auto& [key, value] : text.metadata) metadata[key] = value;
  WriteZeros(path, {{text.key, {text.tokens, text.features}}}, metadata);
}

void WriteTextCache(const std::string& directory, const std::string& item, const TinyText& text) {
  WriteTextCacheFile(absl::StrCat(directory, "/", item, "_qi_te.safetensors"), text);
}

void WriteImage(const std::string& directory, const std::string& item, const std::string& caption) {
  fs::create_directories(directory);
  std::ofstream(absl::StrCat(directory, "/", item, ".png")) << "";
  std::ofstream(absl::StrCat(directory, "/", item, ".txt")) << caption << "\n";
}

}  // namespace blockswap::worker
