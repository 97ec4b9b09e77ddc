// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "offload/base/status_macros.h"
#include "worker/adapter/adapter.h"
#include "worker/io/checkpoint_source.h"
#include "worker/io/float_conversion.h"
#include "worker/io/safetensors.h"
#include "worker/kernels/device_memory.h"
#include "worker/kernels/torch_boundary.h"

namespace blockswap::worker {
namespace {

constexpr char kDown[] = ".lora_down.weight";
constexpr char kUp[] = ".lora_up.weight";
constexpr char kAlpha[] = ".alpha";
constexpr char kKeyPrefix[] = "lora_unet_";

std::string ModuleKey(const AdapterTarget& target) {
  std::string key = absl::StrCat(kKeyPrefix, target.path);
  std::replace(key.begin(), key.end(), '.', '_');
  return key;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

const TensorEntry* FindEntry(const SafetensorsFile& file, const std::string& name) {
  const auto found = file.tensors().find(name);
  return found == file.tensors().end() ? nullptr : &found->second;
}

absl::Status ReadFloats(const SafetensorsFile& file, const std::string& name,
                        const TensorEntry& entry, absl::Span<float> destination) {
  const absl::Status status =
      ConvertFloats(entry.type, file.bytes(entry), StoredType::kF32,
                    absl::MakeSpan(reinterpret_cast<std::byte*>(destination.data()),
                                   destination.size() * sizeof(float)));
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("adapter tensor '", name, "' of ", file.path(), ": ", status.message()));
}

absl::Status ReadTensorInto(const SafetensorsFile& file, const std::string& name,
                            const at::Tensor& destination) {
  const TensorEntry* entry = FindEntry(file, name);
  if (entry == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("adapter tensor '", name, "' is missing in ", file.path()));
  }
  const std::vector<int64_t> expected = destination.sizes().vec();
  if (entry->shape != expected) {
    return absl::InvalidArgumentError(absl::StrCat("adapter tensor '", name, "' of ", file.path(),
                                                   " has shape ", ShapeText(entry->shape),
                                                   ", the job needs ", ShapeText(expected)));
  }
  const HostMemoryScope host_side;
  at::Tensor staging = at::empty(expected, at::TensorOptions().dtype(at::kFloat));
  BLOCKSWAP_RETURN_IF_ERROR(ReadFloats(
      file, name, *entry,
      absl::MakeSpan(staging.mutable_data_ptr<float>(), static_cast<size_t>(staging.numel()))));
  destination.copy_(staging);
  return absl::OkStatus();
}

absl::StatusOr<double> ReadAlpha(const SafetensorsFile& file, const std::string& key,
                                 int64_t rank) {
  const TensorEntry* entry = FindEntry(file, absl::StrCat(key, kAlpha));
  if (entry == nullptr) return static_cast<double>(rank);
  float alpha = 0;
  if (StoredTypeBytes(entry->type) != entry->bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("adapter tensor '", key, kAlpha, "' of ", file.path(), " has shape ",
                     ShapeText(entry->shape), ", a single number is needed"));
  }
  BLOCKSWAP_RETURN_IF_ERROR(
      ReadFloats(file, absl::StrCat(key, kAlpha), *entry, absl::MakeSpan(&alpha, 1)));
  if (!std::isfinite(alpha)) {
    return absl::InvalidArgumentError(
        absl::StrCat("adapter tensor '", key, kAlpha, "' of ", file.path(), " is ", alpha));
  }
  return alpha == 0 ? static_cast<double>(rank) : static_cast<double>(alpha);
}

// Every tensor of the file must belong to one of `keys`.
absl::Status RefuseUnknownKeys(const SafetensorsFile& file, const std::set<std::string>& keys) {
  std::vector<std::string> unknown;
  for (const auto& [name, entry] : file.tensors()) {
    absl::string_view module = name;
    if (!absl::ConsumeSuffix(&module, kDown) && !absl::ConsumeSuffix(&module, kUp))
      absl::ConsumeSuffix(&module, kAlpha);
    if (module.size() == name.size() || keys.count(std::string(module)) == 0)
      unknown.push_back(name);
  }
  if (unknown.empty()) return absl::OkStatus();
  std::string examples = absl::StrCat("'", unknown[0], "'");
  if (unknown.size() > 1) absl::StrAppend(&examples, ", '", unknown[1], "'");
  return absl::InvalidArgumentError(
      absl::StrCat(unknown.size(), " of ", file.tensors().size(), " adapter tensors in ",
                   file.path(), " fit no module: ", examples,
                   "; names are 'lora_unet_<module path with _>", kDown, "' and the like"));
}

absl::StatusOr<std::optional<AdapterModule>> ModuleOfFile(const SafetensorsFile& file,
                                                          const AdapterTarget& target) {
  AdapterModule module{target, ModuleKey(target)};
  const std::string down_name = absl::StrCat(module.key, kDown),
                    up_name = absl::StrCat(module.key, kUp);
  const TensorEntry* down = FindEntry(file, down_name);
  const TensorEntry* up = FindEntry(file, up_name);
  if (down == nullptr && up == nullptr &&
      FindEntry(file, absl::StrCat(module.key, kAlpha)) == nullptr) {
    return std::optional<AdapterModule>();
  }
  if (down == nullptr || up == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("adapter tensor '", down == nullptr ? down_name : up_name, "' is missing in ",
                     file.path(), " though other tensors of its module are there"));
  }
  const int64_t rank = down->shape.empty() ? 0 : down->shape[0];
  const std::vector<int64_t> down_shape = {rank, target.in_features},
                             up_shape = {target.out_features, rank};
  if (rank < 1 || rank > std::numeric_limits<int>::max() || down->shape != down_shape ||
      up->shape != up_shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "adapter module '", module.key, "' of ", file.path(), " has shapes ",
        ShapeText(down->shape), " and ", ShapeText(up->shape), ", the linear needs [rank, ",
        target.in_features, "] and [", target.out_features, ", rank]"));
  }
  module.rank = static_cast<int>(rank);
  BLOCKSWAP_ASSIGN_OR_RETURN(module.alpha, ReadAlpha(file, module.key, rank));
  return std::optional<AdapterModule>(std::move(module));
}

// A tensor of the adapter as the bytes of its file.
struct SavedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

absl::StatusOr<SavedTensor> Encode(std::string name, std::vector<int64_t> shape,
                                   absl::Span<const float> values, Dtype precision) {
  SavedTensor saved{std::move(name), std::move(shape), {}};
  saved.bytes.resize(values.size() * static_cast<size_t>(DtypeBytes(precision)));
  BLOCKSWAP_RETURN_IF_ERROR(
      ConvertFloats(StoredType::kF32,
                    absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                                        values.size() * sizeof(float)),
                    ToStoredType(precision), absl::MakeSpan(saved.bytes)));
  // Checked as stored: a value may overflow in a narrower type.
  std::vector<float> stored(values.size());
  BLOCKSWAP_RETURN_IF_ERROR(ConvertFloats(
      ToStoredType(precision), saved.bytes, StoredType::kF32,
      absl::MakeSpan(reinterpret_cast<std::byte*>(stored.data()), stored.size() * sizeof(float))));
  for (size_t i = 0; i < stored.size(); ++i) {
    if (std::isfinite(stored[i])) continue;
    return absl::FailedPreconditionError(absl::StrCat("adapter not saved: element ", i, " of '",
                                                      saved.name, "' is ", values[i],
                                                      " and would be stored as ", stored[i]));
  }
  return saved;
}

absl::StatusOr<SavedTensor> EncodeTensor(std::string name, const at::Tensor& tensor,
                                         Dtype precision) {
  const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
  return Encode(
      std::move(name), host.sizes().vec(),
      absl::MakeConstSpan(host.const_data_ptr<float>(), static_cast<size_t>(host.numel())),
      precision);
}

// Reads `path` again and holds it to what was meant to be written (F110: a save that lost
// everything must not be a success).
absl::Status VerifySaved(const std::string& path, const std::vector<SavedTensor>& tensors,
                         Dtype precision) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::shared_ptr<SafetensorsFile> file,
                             SafetensorsFile::Open(path));
  if (file->tensors().size() != tensors.size()) {
    return absl::DataLossError(absl::StrCat("adapter ", path, " has ", file->tensors().size(),
                                            " tensors after saving, ", tensors.size(),
                                            " were written"));
  }
  for (const SavedTensor& tensor : tensors) {
    const TensorEntry* entry = FindEntry(*file, tensor.name);
    const bool same =
        entry != nullptr && entry->type == ToStoredType(precision) &&
        entry->shape == tensor.shape && entry->bytes == static_cast<int64_t>(tensor.bytes.size()) &&
        std::memcmp(file->bytes(*entry).data(), tensor.bytes.data(), tensor.bytes.size()) == 0;
    if (!same) {
      return absl::DataLossError(absl::StrCat("adapter ", path, ": tensor '", tensor.name, "' is ",
                                              entry == nullptr ? "missing" : "different",
                                              " after saving"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AdapterLayout> LayoutOfFile(const std::string& path, const ModelDescription& model) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::shared_ptr<SafetensorsFile> file,
                             SafetensorsFile::Open(path));
  AdapterLayout layout;
  std::set<std::string> keys;
  for (const DescribedBlock& block : model.blocks) {
    for (const AdapterTarget& target : block.linears) {
      keys.insert(ModuleKey(target));
      BLOCKSWAP_ASSIGN_OR_RETURN(std::optional<AdapterModule> module, ModuleOfFile(*file, target));
      if (module.has_value()) layout.modules.push_back(*std::move(module));
    }
  }
  BLOCKSWAP_RETURN_IF_ERROR(RefuseUnknownKeys(*file, keys));
  if (layout.modules.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("adapter ", path, " has no tensor for any module of the model"));
  }
  return layout;
}

absl::Status Adapter::Load(const std::string& path) {
  BLOCKSWAP_ASSIGN_OR_RETURN(const std::shared_ptr<SafetensorsFile> file,
                             SafetensorsFile::Open(path));
  std::set<std::string> keys;
  for (const AdapterModule& module : layout_.modules) keys.insert(module.key);
  BLOCKSWAP_RETURN_IF_ERROR(RefuseUnknownKeys(*file, keys));
  return RunContained([&]() -> absl::Status {
    const at::NoGradGuard no_grad;
    for (const AdapterModule& module : layout_.modules) {
      LoraModule& lora = blocks_[static_cast<size_t>(module.target.block)]
                             .linears[static_cast<size_t>(module.target.slot)];
      BLOCKSWAP_RETURN_IF_ERROR(ReadTensorInto(*file, absl::StrCat(module.key, kDown), lora.down));
      BLOCKSWAP_RETURN_IF_ERROR(ReadTensorInto(*file, absl::StrCat(module.key, kUp), lora.up));
      BLOCKSWAP_ASSIGN_OR_RETURN(const double alpha, ReadAlpha(*file, module.key, module.rank));
      // The layout's alpha is the job's; a file trained with another one would silently act with
      // another strength.
      const double stored = static_cast<double>(static_cast<float>(module.alpha));
      if (std::abs(alpha - stored) > 1e-2 * std::abs(stored)) {
        return absl::InvalidArgumentError(absl::StrCat("adapter module '", module.key, "' of ",
                                                       path, " has alpha ", alpha, ", the job has ",
                                                       module.alpha));
      }
    }
    return absl::OkStatus();
  });
}

absl::Status Adapter::Save(const std::string& path, Dtype precision,
                           const std::map<std::string, std::string>& metadata) const {
  if (layout_.modules.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("adapter not saved to ", path, ": it has no module"));
  }
  std::vector<SavedTensor> saved;
  BLOCKSWAP_RETURN_IF_ERROR(RunContained([&]() -> absl::Status {
    const HostMemoryScope host_side;
    for (const AdapterModule& module : layout_.modules) {
      const LoraModule& lora = blocks_[static_cast<size_t>(module.target.block)]
                                   .linears[static_cast<size_t>(module.target.slot)];
      const float alpha = static_cast<float>(module.alpha);
      BLOCKSWAP_ASSIGN_OR_RETURN(
          SavedTensor scalar,
          Encode(absl::StrCat(module.key, kAlpha), {}, absl::MakeConstSpan(&alpha, 1), precision));
      BLOCKSWAP_ASSIGN_OR_RETURN(
          SavedTensor down, EncodeTensor(absl::StrCat(module.key, kDown), lora.down, precision));
      BLOCKSWAP_ASSIGN_OR_RETURN(SavedTensor up,
                                 EncodeTensor(absl::StrCat(module.key, kUp), lora.up, precision));
      saved.push_back(std::move(scalar));
      saved.push_back(std::move(down));
      saved.push_back(std::move(up));
    }
    return absl::OkStatus();
  }));
  std::vector<TensorToWrite> tensors;
  tensors.reserve(saved.size());
  for (const SavedTensor& tensor : saved) {
    tensors.push_back(
        {tensor.name, ToStoredType(precision), tensor.shape, absl::MakeConstSpan(tensor.bytes)});
  }
  BLOCKSWAP_RETURN_IF_ERROR(WriteSafetensors(path, tensors, metadata));
  return VerifySaved(path, saved, precision);
}

}  // namespace blockswap::worker
