// SPDX-License-Identifier: Apache-2.0
#include "worker/train/batch_loader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "offload/base/status_macros.h"
#include "worker/io/safetensors.h"
#include "worker/kernels/device_memory.h"

namespace blockswap::worker {
namespace {

std::optional<at::ScalarType> FloatingType(StoredType type) {
  switch (type) {
    case StoredType::kF64:
      return at::kDouble;
    case StoredType::kF32:
      return at::kFloat;
    case StoredType::kF16:
      return at::kHalf;
    case StoredType::kBF16:
      return at::kBFloat16;
    case StoredType::kF8E4M3:
      return at::kFloat8_e4m3fn;
    default:
      return std::nullopt;
  }
}

// Tensor `key` of a cache file as a contiguous fp32 copy.
absl::StatusOr<at::Tensor> LoadTensor(const std::string& path, const std::string& key,
                                      const std::vector<int64_t>& expected_shape) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::shared_ptr<SafetensorsFile> file,
                             SafetensorsFile::Open(path));
  const auto found = file->tensors().find(key);
  if (found == file->tensors().end()) {
    return absl::DataLossError(
        absl::StrCat(path, " has lost tensor ", key, " since the dataset was indexed"));
  }
  const TensorEntry& entry = found->second;
  const std::optional<at::ScalarType> type = FloatingType(entry.type);
  if (!type.has_value() || entry.shape != expected_shape) {
    return absl::DataLossError(
        absl::StrCat(path, ": tensor ", key, " is ", StoredTypeName(entry.type), " [",
                     absl::StrJoin(entry.shape, ", "), "], expected floating point [",
                     absl::StrJoin(expected_shape, ", "), "]"));
  }
  const at::Tensor stored = at::empty(entry.shape, at::TensorOptions().dtype(*type));
  BLOCKSWAP_RETURN_IF_ERROR(
      file->Read(entry, absl::MakeSpan(static_cast<std::byte*>(stored.mutable_data_ptr()),
                                       static_cast<size_t>(entry.bytes))));
  return stored.to(at::kFloat);
}

absl::StatusOr<at::Tensor> LoadLatent(const DatasetItem& item) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const at::Tensor latent_CFHW,
                             LoadTensor(item.latent_path, item.latent_key,
                                        {item.channels, item.frames, item.height, item.width}));
  return latent_CFHW.squeeze(1);
}

// The width is the file's own: the index has checked it against the model.
absl::StatusOr<int64_t> TextFeatures(const std::string& path, const std::string& key) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::shared_ptr<SafetensorsFile> file,
                             SafetensorsFile::Open(path));
  const auto found = file->tensors().find(key);
  if (found == file->tensors().end() || found->second.shape.size() != 2) {
    return absl::DataLossError(absl::StrCat(path, " has no two-dimensional tensor ", key));
  }
  return found->second.shape[1];
}

}  // namespace

absl::StatusOr<at::Tensor> LoadText(const std::string& path, const std::string& key,
                                    int64_t tokens) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const int64_t features, TextFeatures(path, key));
  BLOCKSWAP_ASSIGN_OR_RETURN(const at::Tensor text_TJ, LoadTensor(path, key, {tokens, features}));
  return text_TJ.unsqueeze(0);
}

absl::StatusOr<LoadedBatch> LoadBatch(const Dataset& dataset, const Batch& batch) {
  const HostMemoryScope host_side;
  LoadedBatch loaded;
  std::vector<at::Tensor> latents, texts;
  int64_t longest = 1;
  bool padded = false;
  for (const int64_t index : batch.items) {
    const DatasetItem& item = dataset.items()[static_cast<size_t>(index)];
    BLOCKSWAP_ASSIGN_OR_RETURN(at::Tensor latent, LoadLatent(item));
    BLOCKSWAP_ASSIGN_OR_RETURN(at::Tensor text,
                               LoadText(item.text_path, item.text_key, item.text_tokens));
    latents.push_back(std::move(latent));
    texts.push_back(std::move(text));
    loaded.names.push_back(item.name);
    longest = std::max(longest, item.text_tokens);
  }
  const int64_t count = static_cast<int64_t>(texts.size());
  loaded.latents_BCHW = at::stack(latents);
  loaded.text_BTJ = at::zeros({count, longest, texts.front().size(2)}, at::kFloat);
  loaded.text_mask_BT = at::zeros({count, longest}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor& text = texts[static_cast<size_t>(i)];
    loaded.text_BTJ[i].narrow(0, 0, text.size(1)).copy_(text[0]);
    loaded.text_mask_BT[i].narrow(0, 0, text.size(1)).fill_(1);
    padded = padded || text.size(1) != longest;
  }
  if (!padded) loaded.text_mask_BT = at::Tensor();
  return loaded;
}

}  // namespace blockswap::worker
